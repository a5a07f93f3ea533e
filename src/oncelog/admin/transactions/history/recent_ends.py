"""Reads from ``__transaction_state`` which ids had transactions aborted at their time-out lately."""

# The coordinator's log is the only place that tells an abort at the time-out from the producer's own: by the epoch that
# the coordinator raised, and by the age (coordinator_log). The newest changes matter most: a partition of the log is
# read from its window's begin, or later if that has more than its share. Only aborts are decoded, with the change
# before each: a busy cluster writes thousands of changes a second.

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from oncelog.admin.transactions.coordinator_log import transactions_of
from oncelog.admin.transactions.fetches import fetch_request, fetched_in
from oncelog.base.ids import TRANSACTION_STATE, TopicPartition
from oncelog.base.text import counted
from oncelog.base.units import KIB, MIB, MINUTE_MS
from oncelog.client.errors import ClientError, explain
from oncelog.client.machine.consumed_records import MAX_BATCH_BYTES
from oncelog.client.machine.positions import Fetched
from oncelog.client.machine.requests import LATEST, offset_query
from oncelog.client.programs import Cluster, Program, operation, parallel
from oncelog.client.programs.log_offsets import list_offsets
from oncelog.records.batch import crc_matches, iter_headers
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal.transaction_records import STATE_NAMES, TransactionValue, decode_key, decode_value
from oncelog.records.record import read_records

WINDOW_MS: Final = 15 * MINUTE_MS
MANY: Final = 3
"""Time-outs of an id within the window that are no accident."""
MOST_BYTES: Final = 8 * MIB
MOST_IDS_BYTES: Final = 32 * MIB
_LEAST_SHARE: Final = 256 * KIB
_SMALLEST_CHANGE: Final = 100
_AT_ONCE: Final = 4
_STATUS_AT: Final = 16
_ONGOING: Final = STATE_NAMES.index("Ongoing")
_COMMITS: Final = frozenset(map(STATE_NAMES.index, ("PrepareCommit", "CompleteCommit")))
_ABORTS: Final = frozenset(map(STATE_NAMES.index, ("PrepareAbort", "CompleteAbort", "PrepareEpochFence")))


@dataclass(slots=True)
class IdEnds:
    """Ends of an id's transactions in the window; ``timed_out_ms`` are the times of its aborts at the time-out."""

    transactional_id: str
    producer_id: int
    timeout_ms: int
    timed_out_ms: list[int] = field(default_factory=list)
    ended: int = 0


@dataclass(frozen=True, slots=True)
class RecentEnds:
    """``timed_out`` has the ids with such aborts; ``problem`` says why some may be missing."""

    since_ms: int = 0
    timed_out: Mapping[str, IdEnds] = field(default_factory=dict)
    problem: str | None = None

    @property
    def repeated(self) -> list[IdEnds]:
        """The ids that time out again and again, the most frequent first."""
        often = [ends for ends in self.timed_out.values() if len(ends.timed_out_ms) >= MANY]
        return sorted(often, key=lambda ends: (-len(ends.timed_out_ms), ends.transactional_id))


@operation
def read_recent_ends(cluster: Cluster, *, window_ms: int = WINDOW_MS) -> Program[RecentEnds]:
    """Ends of transactions within ``window_ms``, of ids with an abort at the time-out."""
    since_ms = cluster.environment.wall_ms() - window_ms
    try:
        topics = yield from cluster.metadata([TRANSACTION_STATE])
        info = topics.get(TRANSACTION_STATE)
        partitions = [] if info is None else [p for p in info.partitions.values() if p.leader >= 0]
        selected = [TopicPartition(TRANSACTION_STATE, partition.partition) for partition in partitions]
        begins = yield from list_offsets(cluster, dict.fromkeys(selected, offset_query(since_ms)))
        ends = yield from list_offsets(cluster, dict.fromkeys(selected, LATEST))
    except ClientError as error:
        return RecentEnds(since_ms, {}, f"{TRANSACTION_STATE} could not be read: {error}")
    ranges = {
        partition: (begins[partition].offset, ends[partition].offset)
        for partition in selected
        if 0 <= begins[partition].offset < ends[partition].offset
    }
    share = max(_LEAST_SHARE, MOST_BYTES // max(1, len(ranges)))
    changes = Changes()
    problems: list[str] = []

    def read(partition: TopicPartition) -> Program[None]:
        try:
            problems.extend((yield from _read(cluster, partition, ranges[partition], share, changes)))
        except (ClientError, CorruptBatch) as error:
            problems.append(f"{partition} could not be read: {error}")

    queue = list(ranges)
    for start in range(0, len(queue), _AT_ONCE):
        yield from parallel(read(partition) for partition in queue[start : start + _AT_ONCE])
    more = f" and {counted(len(problems) - 1, 'more partition')}" if len(problems) > 1 else ""
    return RecentEnds(since_ms, changes.timed_out, f"{problems[0]}{more}" if problems else None)


def _read(
    cluster: Cluster, partition: TopicPartition, offsets: tuple[int, int], share: int, changes: Changes
) -> Program[list[str]]:
    """Returns the bounds that were reached. Raises ClientError, CorruptBatch."""
    begin, end = offsets
    position, left_bytes = max(begin, end - share // _SMALLEST_CHANGE), 4 * share
    skipped = [f"{partition} has too much to read all of it"] if position > begin else []
    while position < end:
        leader = yield from cluster.leader(partition)
        request = fetch_request(cluster.view, {partition: position}, share)
        answer = yield from cluster.request(request, broker=leader)
        fetched = next(iter(fetched_in(cluster.view, answer, {partition: position})), None)
        code = answer.error_code if fetched is None else fetched.error_code
        if fetched is None or code:
            raise ClientError(explain(code) if code > 0 else "no readable batch")
        if not fetched.records:
            break
        changes.add_batches(fetched)
        position = fetched.next_offset
        left_bytes -= len(fetched.records)
        if left_bytes <= 0:
            return [f"{partition} has too much to read all of it"]
    return skipped


class Changes:
    """The changes of many ids, in the order of the log."""

    def __init__(self) -> None:
        self._begun: dict[bytes, bytes] = {}
        self._left_bytes = MOST_IDS_BYTES  # For keys, and for the transactions that are begun.
        self._ends: dict[bytes, int] = {}
        self.timed_out: dict[str, IdEnds] = {}

    def add_batches(self, fetched: Fetched) -> None:
        """Raises CorruptBatch."""
        for at, header in iter_headers(fetched.records):
            if header.is_control:
                continue
            if not crc_matches(fetched.records, at, header):
                raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} is wrong")
            records = read_records(fetched.records, at, header, MAX_BATCH_BYTES)
            self.add(
                (bytes(record.key), bytes(record.value))
                for record in records
                if record.key is not None and record.value is not None
            )

    def add(self, changes: Iterable[tuple[bytes, bytes]]) -> None:
        for key, value in changes:
            status = value[_STATUS_AT] if len(value) > _STATUS_AT else None
            if status == _ONGOING:
                self._begin(key, value)
            elif status in _COMMITS or status in _ABORTS:
                begun = self._begun.pop(key, None)
                # A completion follows its decision, and counts with it.
                if begun is not None:
                    self._left_bytes += len(begun)
                    self._ends[key] = self._ends.get(key, 0) + 1
                    if status in _ABORTS:
                        self._add_abort(key, begun, value)

    def _begin(self, key: bytes, value: bytes) -> None:
        before = self._begun.get(key)
        cost = len(value) - len(before) if before is not None else len(value)
        if before is None and key not in self._ends:
            cost += len(key)
        if cost <= self._left_bytes:
            self._left_bytes -= cost
            self._begun[key] = value

    def _add_abort(self, key: bytes, begun: bytes, ended: bytes) -> None:
        name, before, after = decode_key(key), decode_value(begun), decode_value(ended)
        if not (isinstance(name, str) and isinstance(before, TransactionValue) and isinstance(after, TransactionValue)):
            return
        *_, past = transactions_of([before, after]) or (None,)
        if past is None or not past.after_timeout or past.ended_ms is None:
            return
        ends = self.timed_out.setdefault(name, IdEnds(name, past.producer_id, after.timeout_ms))
        ends.producer_id, ends.timeout_ms = past.producer_id, after.timeout_ms
        ends.timed_out_ms.append(past.ended_ms)
        ends.ended = self._ends[key]
