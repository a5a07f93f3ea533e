"""D6 to D8: what the coordinators' logs decided is what the markers in the partitions say, one for each transaction.

The coordinators' log tells, transaction by transaction, outcome, epoch and partitions (its Prepare record). In each of
these partitions the producer's markers must be the same outcomes in the same order. A marker may be repeated (the
coordinator lost the answer: it was restarted), or be an administrator's: the audit log says so (see
``admin_aborts``), or, where there is none, its epoch, which is that of the data.
Where either log is not whole any more, nothing is said of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from oncelog.base.ids import TRANSACTION_STATE, TopicName, TopicPartition
from oncelog.records.internal.transaction_records import TransactionValue, decode_key, decode_value
from oncelog.sim.checkers.disk.admin_aborts import UNAUDITED, End, Listing, Listings, live_ended
from oncelog.sim.checkers.disk.logs import ChangingTopics, Finding
from oncelog.sim.checkers.disk.scan import Batch, Marker, ScannedLog

DISAGREES: Final = "D6 marker disagrees with the coordinator"
MISSING: Final = "D7 marker missing"
REPEATED: Final = "D8 marker written twice"
SET_BACK_MS: Final = 2_000
"""A clock may be set back so far, so that what came later has an earlier timestamp."""
_PREPARE_COMMIT: Final = 2
_PREPARE_ABORT: Final = 3
_TRANSACTIONS_V2: Final = 2


class TransactionDecision(NamedTuple):
    """One transaction as decided, by the epoch its markers carry."""

    epoch: int
    committed: bool
    transactional_id: str
    version: int


Decisions = Mapping[tuple[TopicPartition, int], list[TransactionDecision]]
"""(partition, producer id) → the transactions decided on it, in order."""


class CoordinatorLogs(NamedTuple):
    """Decisions and lists of the coordinators; ``known``: the producer ids of whole logs."""

    decided: dict[tuple[TopicPartition, int], list[TransactionDecision]]
    listed: Mapping[tuple[TopicPartition, int], list[Listing]]
    known: set[int]


def words_of(logs: Mapping[TopicPartition, ScannedLog]) -> CoordinatorLogs:
    """Every record of the coordinators' logs."""
    decided: dict[tuple[TopicPartition, int], list[TransactionDecision]] = {}
    known: set[int] = set()
    listings = Listings()
    for partition, log in sorted(logs.items()):
        if partition.topic != TRANSACTION_STATE or not log.is_whole:
            continue
        for batch in log.batches:
            for record in batch.records:
                transactional_id = decode_key(record.key)
                value = None if record.value is None else decode_value(record.value)
                if not isinstance(transactional_id, str):
                    continue
                if isinstance(value, TransactionValue):
                    known.add(value.producer_id)
                    _decide(decided, transactional_id, value)
                listings.read(transactional_id, value if isinstance(value, TransactionValue) else None)
    listings.end()
    return CoordinatorLogs(decided, listings.of, known)


def _decide(
    decided: dict[tuple[TopicPartition, int], list[TransactionDecision]], transactional_id: str, value: TransactionValue
) -> None:
    if value.status not in (_PREPARE_COMMIT, _PREPARE_ABORT):
        return
    decision = TransactionDecision(
        value.producer_epoch, value.status == _PREPARE_COMMIT, transactional_id, value.client_transaction_version
    )
    for topic, partitions in value.partitions or ():
        for index in partitions:
            place = TopicPartition(TopicName(topic), index), value.producer_id
            decided.setdefault(place, []).append(decision)


class Known(NamedTuple):
    """Facts beside the logs that markers and decisions are compared by."""

    settled: bool
    restarted_at_ms: Sequence[int]
    ended: Mapping[tuple[TopicPartition, int, int, int], End] | None
    """Ends in the audit log by partition, producer id and epoch, and time; None: there is no log."""
    may_repeat: bool = False

    def end_of(self, partition: TopicPartition, batch: Batch) -> End | None:
        header, marker = batch.header, batch.marker
        if self.ended is None or marker is None or marker.committed:
            return None
        return self.ended.get((partition, header.producer_id, header.producer_epoch, marker.timestamp))


def markers(
    logs: Mapping[TopicPartition, ScannedLog],
    kept: ChangingTopics,
    *,
    settled: bool,
    restarted_at_ms: Sequence[int] = (),
    ended: Iterable[End] | None = None,
    may_repeat: bool = False,
) -> Iterator[Finding]:
    """``settled``: the coordinators had time to write all markers before the disk was read. ``may_repeat``: answers of
    leaders to coordinators may have been lost on the way, so that markers were sent again."""
    words = words_of(logs)
    by_name = None if ended is None else {(e.partition, e.producer_id, e.producer_epoch, e.at_ms): e for e in ended}
    also = Known(settled, restarted_at_ms, by_name, may_repeat)
    for partition, log in sorted(logs.items()):
        if partition.topic in kept.recreated or not log.is_whole:
            continue
        by_producer: dict[int, list[Batch]] = {}
        for batch in log.batches:
            if batch.header.producer_id >= 0 and batch.header.is_transactional:
                by_producer.setdefault(batch.header.producer_id, []).append(batch)
        expecting = {producer for place, producer in words.decided if place == partition}
        for producer in sorted(by_producer.keys() | expecting):
            batches = by_producer.get(producer, [])
            if settled:
                yield from _undecided(partition, producer, batches)
            if producer in words.known:
                yield from _compare(partition, producer, batches, words, also)
                if settled:
                    yield from _not_written(partition, producer, batches, words, also)


def _undecided(partition: TopicPartition, producer: int, batches: list[Batch]) -> Iterator[Finding]:
    if batches and batches[-1].marker is None and not batches[-1].header.is_control:
        yield MISSING, f"{partition}: producer {producer} has data after its last marker"


def _compare(
    partition: TopicPartition, producer: int, batches: list[Batch], words: CoordinatorLogs, also: Known
) -> Iterator[Finding]:
    expected = words.decided.get((partition, producer), [])
    listed = words.listed.get((partition, producer), [])
    position = 0
    last: Marker | None = None
    for batch in batches:
        if batch.marker is None:
            continue
        found = batch.header.producer_epoch, batch.marker.committed
        where = f"{partition}@{batch.header.base_offset}: producer {producer}, epoch {found[0]}"
        said = "commit" if found[1] else "abort"
        end = also.end_of(partition, batch)
        if end is not None:
            yield from live_ended(end, listed, position)
            continue
        if position < len(expected) and expected[position][:2] == found:
            position += 1
        elif position and expected[position - 1][:2] == found:
            excused = also.may_repeat or last is None or last.coordinator_epoch < batch.marker.coordinator_epoch
            excused |= _restarted_between(last or batch.marker, batch.marker, also.restarted_at_ms)
            if expected[position - 1].version >= _TRANSACTIONS_V2 and not excused:
                yield REPEATED, f"{where}, {said} twice"
        elif found[1] or not _is_administrators(found[0], expected, position):
            yield DISAGREES, f"{where}, {said}, decided was {_shown(expected, position)}"
            return
        elif also.ended is not None and batch.marker.timestamp not in also.restarted_at_ms:
            # Who dies in the very step in which a marker is written does not come to write it down.
            yield UNAUDITED, f"{where}, {said}, decided was {_shown(expected, position)}"
        last = batch.marker


def _restarted_between(one: Marker, other: Marker, restarted_at_ms: Sequence[int]) -> bool:
    return any(one.timestamp - SET_BACK_MS <= at <= other.timestamp + SET_BACK_MS for at in restarted_at_ms)


def _not_written(
    partition: TopicPartition, producer: int, batches: list[Batch], words: CoordinatorLogs, also: Known
) -> Iterator[Finding]:
    """The markers that are there stand for the first of the decisions; :func:`_compare` says so if they do not."""
    expected = words.decided.get((partition, producer), [])
    written = [
        (b.header.producer_epoch, b.marker.committed)
        for b in batches
        if b.marker is not None and also.end_of(partition, b) is None
    ]
    position = 0
    for found in written:
        if position < len(expected) and expected[position][:2] == found:
            position += 1
    if position < len(expected):
        yield MISSING, f"{partition}: producer {producer}, decided was {_shown(expected, position)}"


def _is_administrators(epoch: int, expected: list[TransactionDecision], position: int) -> bool:
    """An abort with the epoch of the data: below what the coordinator will write, or of a transaction it forgot."""
    return position >= len(expected) or epoch < expected[position].epoch


def _shown(expected: list[TransactionDecision], position: int) -> str:
    if position >= len(expected):
        return "nothing more"
    decision = expected[position]
    return f"{'commit' if decision.committed else 'abort'} of {decision.transactional_id} at epoch {decision.epoch}"
