"""Reads the past transactions of an id from the end of its coordinator's log, ``__transaction_state``."""

# DescribeTransactions has only the present state. The log has each change until compaction removes it, and compaction
# spares the newest segment: how a transaction ended, when, and whether its client raises epochs (Transactions V2).
#
# Rules:
#
# 1. The work is bounded: ``WINDOWS`` offsets from the end and ``MOST_BYTES``. A batch is decoded only if it has the
#    key.
# 2. A missing permission or a bound that is reached is a problem in words, never an error: the log is evidence beside
#    the coordinator's answer.
# 3. A transaction is known by its start time, which all changes of it share.

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from oncelog.admin.transactions.broker_requests import Progress, no_progress
from oncelog.admin.transactions.fetches import fetch_request, fetched_in
from oncelog.admin.transactions.stored_identity import TRANSACTIONS_V2, PastTransaction
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import TRANSACTION_STATE, TopicName, TopicPartition
from oncelog.base.units import MIB
from oncelog.client.errors import ClientError, explain
from oncelog.client.machine.consumed_records import MAX_BATCH_BYTES
from oncelog.client.machine.positions import Fetched
from oncelog.client.machine.requests import EARLIEST, LATEST, list_offsets_request
from oncelog.client.programs import Cluster, Program, operation
from oncelog.records.batch import crc_matches, iter_headers
from oncelog.records.compression import Codec
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal.transaction_records import (
    NO_TIMESTAMP,
    STATE_NAMES,
    TransactionValue,
    Unknown,
    decode_value,
    encode_key,
)
from oncelog.records.record import read_records

WINDOWS: Final = (5_000, 500_000)
"""Offsets from the end: the first is read always, the second if the first does not have the transaction."""
MOST_BYTES: Final = 64 * MIB
MOST_CHANGES: Final = 10_000
FETCH_BYTES: Final = MIB


@dataclass(frozen=True, slots=True)
class CoordinatorLog:
    """The past transactions of an id, oldest first; ``problem`` says why they may be incomplete."""

    transactions: tuple[PastTransaction, ...] = ()
    problem: str | None = None


@operation
def read_coordinator_log(
    cluster: Cluster, transactional_id: str, identity: tuple[int, int], *, progress: Progress = no_progress
) -> Program[CoordinatorLog]:
    """The id's transactions, as far back as the log is read; ``identity`` is the producer id and epoch looked for."""
    try:
        return (yield from _read(cluster, transactional_id, identity, progress))
    except (ClientError, CorruptBatch) as error:
        return CoordinatorLog(problem=f"{TRANSACTION_STATE} could not be read: {error}")


def _read(
    cluster: Cluster, transactional_id: str, identity: tuple[int, int], progress: Progress
) -> Program[CoordinatorLog]:
    topics = yield from cluster.metadata([TRANSACTION_STATE])
    info = topics.get(TRANSACTION_STATE)
    if info is None or not info.partitions:
        return CoordinatorLog(problem=f"{TRANSACTION_STATE} is not visible")
    partition = TopicPartition(TRANSACTION_STATE, coordinator_partition(transactional_id, len(info.partitions)))
    begin = yield from _offset(cluster, partition, EARLIEST)
    end = yield from _offset(cluster, partition, LATEST)
    log = CoordinatorLog()
    for window in WINDOWS:
        start = max(begin, end - window)
        changes, problem = yield from _changes(cluster, partition, (start, end), encode_key(transactional_id), progress)
        log = CoordinatorLog(tuple(transactions_of(changes)), problem)
        has_end = any(
            (past.producer_id, past.producer_epoch) == identity and past.committed is not None
            for past in log.transactions
        )
        if has_end or start == begin or problem is not None:
            break
    return log


def _offset(cluster: Cluster, partition: TopicPartition, which: int) -> Program[int]:
    leader = yield from cluster.leader(partition)
    message = list_offsets_request(cluster.view, {partition: which}, [partition], False)
    answer = yield from cluster.request(message, broker=leader)
    result = answer.topics[0].partitions[0]
    if result.error_code:
        raise ClientError(explain(result.error_code))
    return int(result.offset)


def _changes(
    cluster: Cluster, partition: TopicPartition, offsets: tuple[int, int], key: bytes, progress: Progress
) -> Program[tuple[list[TransactionValue], str | None]]:
    """The changes of one id between two offsets, and the bound that was reached, if any."""
    position, end = offsets
    total = end - position
    left_bytes = MOST_BYTES
    changes: list[TransactionValue] = []
    while position < end:
        leader = yield from cluster.leader(partition)
        request = fetch_request(cluster.view, {partition: position}, FETCH_BYTES)
        answer = yield from cluster.request(request, broker=leader)
        if answer.error_code:
            raise ClientError(explain(answer.error_code))
        fetched = next(iter(fetched_in(cluster.view, answer, {partition: position})), None)
        if fetched is None or fetched.error_code:
            raise ClientError(
                explain(fetched.error_code) if fetched and fetched.error_code > 0 else "no readable batch"
            )
        if not fetched.records:
            break
        changes += _changes_in(fetched, key)
        del changes[:-MOST_CHANGES]
        position = fetched.next_offset
        left_bytes -= len(fetched.records)
        progress(min(total, total - (end - position)), total)
        if left_bytes <= 0 and position < end:
            # The newest changes are the ones that matter.
            return [], f"the last {total} offsets of {partition} have more than {MOST_BYTES // MIB} MiB"
    return changes, None


def _changes_in(fetched: Fetched, key: bytes) -> Iterable[TransactionValue]:
    """Raises CorruptBatch."""
    for at, header in iter_headers(fetched.records):
        if header.is_control:
            continue
        whole = fetched.records[at : at + header.size_bytes]
        # Rule 1.
        if header.codec is Codec.NONE and key not in bytes(whole):
            continue
        if not crc_matches(fetched.records, at, header):
            raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} is wrong")
        for record in read_records(fetched.records, at, header, MAX_BATCH_BYTES):
            if record.key is None or bytes(record.key) != key or record.value is None:
                continue
            value = decode_value(bytes(record.value))
            if not isinstance(value, Unknown):
                yield value


def transactions_of(changes: Iterable[TransactionValue]) -> list[PastTransaction]:
    """The transactions that the changes of one id describe, oldest first."""
    past: list[PastTransaction] = []
    for value in changes:
        if value.start_timestamp == NO_TIMESTAMP:
            continue
        state = STATE_NAMES[value.status]
        # Rule 3.
        is_same = bool(past) and past[-1].start_ms == value.start_timestamp
        if state == "Ongoing":
            if is_same and past[-1].committed is None:
                past.pop()
            past.append(_begun(value))
        elif state in _ENDS:
            before = past.pop() if is_same else None
            past.append(_ended(value, before, _ENDS[state]))
    return past


def _begun(value: TransactionValue) -> PastTransaction:
    return PastTransaction(
        value.producer_id,
        value.producer_epoch,
        value.start_timestamp,
        None,
        None,
        client_version=value.client_transaction_version,
        partitions=_partitions_of(value),
    )


def _partitions_of(value: TransactionValue) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(TopicName(topic), index) for topic, indexes in value.partitions or () for index in indexes
    )


_ENDS: Final = {
    "PrepareCommit": True,
    "CompleteCommit": True,
    "PrepareAbort": False,
    "CompleteAbort": False,
    "PrepareEpochFence": False,
}


def _ended(value: TransactionValue, before: PastTransaction | None, committed: bool) -> PastTransaction:
    if before is None:
        before = PastTransaction(_producer_id_of(value), _epoch_of(value, committed), value.start_timestamp, None, None)
    if before.committed is not None:
        return before
    age_ms = value.last_update_timestamp - value.start_timestamp
    # Only the coordinator raises the epoch of a V1 transaction; a V2 client's abort looks the same, but comes earlier.
    after_timeout = (
        not committed
        and before.producer_epoch is not None
        and value.producer_epoch != before.producer_epoch
        and age_ms >= value.timeout_ms
    )
    return before._replace(
        ended_ms=value.last_update_timestamp,
        committed=committed,
        after_timeout=after_timeout,
        # A decision has all of them; a completion has none.
        partitions=before.partitions | _partitions_of(value),
    )


def _epoch_of(value: TransactionValue, committed: bool) -> int | None:
    """The epoch of the records of an ended transaction, whose start compaction has removed."""
    if value.client_transaction_version >= TRANSACTIONS_V2:
        return value.producer_epoch - 1 if value.producer_epoch > 0 else None
    # An abort may have raised the epoch or not.
    return value.producer_epoch if committed else None


def _producer_id_of(value: TransactionValue) -> int:
    # After the last epoch of a producer id, the end brings the next one.
    is_last = value.producer_epoch == 0 and value.previous_producer_id >= 0
    return value.previous_producer_id if is_last else value.producer_id
