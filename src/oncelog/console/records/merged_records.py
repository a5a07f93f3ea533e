"""Records of several partitions as one list, the newest or the oldest first, by bounded work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from oncelog.base.ids import TopicPartition
from oncelog.base.units import KIB, MIB
from oncelog.client.blocking.client import Client
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.console.records.matching import matching_records
from oncelog.console.records.read_lock import read_locked
from oncelog.console.records.record_filter import RecordFilter
from oncelog.console.records.record_states import MARKER, PLAIN, UNDECIDED, UNREADABLE, StoredRecord, decided_states
from oncelog.console.records.transaction_outcomes import Outcomes, look_ahead
from oncelog.console.records.windows import Windows
from oncelog.records.batch import BatchHeader, iter_headers
from oncelog.records.errors import CorruptBatch

# Each partition is a lane: the window of its offsets that is not read yet, and candidates that are read, not listed.
#
# 1. A partition's records are listed in the order of their offsets. Of the lanes' next candidates the one with the
#    latest (earliest) timestamp comes first, of equal ones that of the lowest partition.
# 2. A lane without candidates is read before another record is listed, until `READ_BYTES` are read or `TIME_MS` have
#    passed. From then on the list has what was found, and `remaining` the offsets that it does not cover.
# 3. A log is read forwards only. For the newest first a lane is read in chunks, each below the one before.
# 4. A large record is shown at once, under the read lock, and its content dropped. Small ones are shown when listed.

READ_BYTES: Final = 32 * MIB  # Without those read in search of markers.
TIME_MS: Final = 3000
KEPT_BYTES: Final = 6 * MIB  # Content of the candidates of all lanes; each lane has one whatever its size.
MAX_CANDIDATES: Final = 5000
_CHUNK_BYTES: Final = 4 * MIB  # A chunk that turns out larger is read in smaller ones.
_SMALL_BYTES: Final = 2 * KIB
_SHOWN_BYTES: Final = 8 * KIB  # About the size of a large record as it is shown.
_MAX_STEP: Final = 1_000_000
_POLL_MS: Final = 100
Show = Callable[[TopicPartition, StoredRecord], Any]


@dataclass(frozen=True, slots=True)
class ListedRecord:
    """A record without its content, and the result of ``show``."""

    partition: TopicPartition
    record: StoredRecord
    shown: Any


@dataclass(frozen=True, slots=True)
class MergedRecords:
    """``remaining`` is the window of each partition that the list does not cover; ``is_cut``: its bounds were reached
    before it was full."""

    records: list[ListedRecord]
    remaining: dict[TopicPartition, tuple[int, int]]
    is_cut: bool

    @property
    def offsets_left(self) -> int:
        return sum(until - start for start, until in self.remaining.values())


@dataclass(slots=True)
class _Candidate:
    record: StoredRecord
    shown: Any = None
    is_shown: bool = False

    @property
    def size_bytes(self) -> int:
        return _SHOWN_BYTES if self.is_shown else self.record.size_bytes

    @property
    def end(self) -> int:
        return self.record.batch.next_offset if self.record.state == UNREADABLE else self.record.offset + 1


@dataclass(slots=True)
class _Lane:
    partition: TopicPartition
    start: int
    until: int
    stable: int
    step: int
    candidates: deque[_Candidate] = field(default_factory=deque)

    @property
    def is_hungry(self) -> bool:
        return not self.candidates and self.start < self.until

    def remaining(self, newest: bool) -> tuple[int, int]:
        if not self.candidates:
            return self.start, self.until
        if newest:
            return self.start, self.candidates[0].end
        return self.candidates[0].record.offset, self.until


@dataclass(slots=True)
class _Chunk:
    """A part of a lane's window, on one side of the last stable offset. ``floor`` is how far down its first batch may
    count."""

    lane: _Lane
    floor: int
    low: int
    high: int
    is_decided: bool
    position: int
    candidates: deque[_Candidate] = field(default_factory=deque)
    read_bytes: int = 0
    is_full: bool = False


def merged_records(
    client: Client, windows: Windows, record_filter: RecordFilter, count: int, show: Show, *, newest: bool
) -> MergedRecords:
    """Up to ``count`` matching records of the windows. Raises ClientError."""
    merge = _Merge(client, windows, record_filter, count, show, newest)
    try:
        return merge.run()
    finally:
        merge.close()


class _Merge:
    def __init__(
        self, client: Client, windows: Windows, record_filter: RecordFilter, count: int, show: Show, newest: bool
    ) -> None:
        self._client, self._windows, self._filter = client, windows, record_filter
        self._count, self._show, self._newest = count, show, newest
        lanes = max(1, len(windows.start))
        self._keep = max(1, min(count, MAX_CANDIDATES // lanes))
        # The newest batch of each partition tells how much one of the next chunks may hold.
        step = 1 if newest else min(self._keep, 2 + -(-count // lanes))
        self._lanes = [
            _Lane(partition, start, windows.until[partition], windows.bounds[partition].last_stable_offset, step)
            for partition, start in sorted(windows.start.items())
        ]
        self._partition_bytes = min(MIB, max(16 * KIB, READ_BYTES // (4 * lanes)))
        self._fetchers: dict[bool, Fetcher] = {}
        self._deadline_ms = client.system.now_ms() + TIME_MS
        self._read_bytes = 0
        self._kept_bytes = 0

    def close(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.close()

    def run(self) -> MergedRecords:
        listed: list[tuple[_Lane, _Candidate]] = []
        while len(listed) < self._count:
            hungry = [lane for lane in self._lanes if lane.is_hungry]
            if hungry and not self._is_spent():
                self._fill(hungry)
                continue
            ready = [lane for lane in self._lanes if lane.candidates]
            if not ready:
                break
            lane = min(ready, key=self._rank)
            candidate = lane.candidates.popleft()
            self._kept_bytes -= candidate.size_bytes
            self._show_now(lane.partition, candidate)
            listed.append((lane, candidate))
        self._settle(listed)
        return MergedRecords(
            [ListedRecord(lane.partition, candidate.record, candidate.shown) for lane, candidate in listed],
            {lane.partition: lane.remaining(self._newest) for lane in self._lanes},
            len(listed) < self._count and any(lane.is_hungry for lane in self._lanes),
        )

    def _rank(self, lane: _Lane) -> tuple[int, TopicPartition]:
        timestamp_ms = lane.candidates[0].record.timestamp_ms
        return (-timestamp_ms if self._newest else timestamp_ms), lane.partition

    def _is_spent(self) -> bool:
        return self._read_bytes >= READ_BYTES or self._is_late()

    def _is_late(self) -> bool:
        return self._client.system.now_ms() >= self._deadline_ms

    def _show_now(self, partition: TopicPartition, candidate: _Candidate) -> None:
        if not candidate.is_shown:
            candidate.shown, candidate.is_shown = self._show(partition, candidate.record), True
            candidate.record = replace(candidate.record, key=None, value=None, headers=())

    def _fill(self, lanes: Iterable[_Lane]) -> None:
        """Read the next chunk of each lane."""
        chunks = {lane.partition: self._next_chunk(lane) for lane in lanes}
        for is_decided in (True, False):
            part = {partition: chunk for partition, chunk in chunks.items() if chunk.is_decided is is_decided}
            if part:
                self._read(part, is_decided)
        if self._filter.states:
            self._settle([(chunk.lane, candidate) for chunk in chunks.values() for candidate in chunk.candidates])
        for chunk in chunks.values():
            self._finish(chunk)

    def _next_chunk(self, lane: _Lane) -> _Chunk:
        if self._newest:
            is_decided = lane.until <= lane.stable
            floor = lane.start if is_decided else max(lane.start, lane.stable)
            low, high = max(floor, lane.until - lane.step), lane.until
        else:
            is_decided = lane.start < lane.stable
            floor = low = lane.start
            high = min(lane.until, low + lane.step, lane.stable if is_decided else lane.until)
        return _Chunk(lane, floor, low, high, is_decided, low)

    def _read(self, chunks: Mapping[TopicPartition, _Chunk], is_decided: bool) -> None:
        fetcher = self._fetchers.get(is_decided)
        if fetcher is None:
            settings = FetchSettings(
                _POLL_MS, 1, 4 * MIB, partition_max_bytes=self._partition_bytes, read_committed=is_decided
            )
            fetcher = self._fetchers[is_decided] = Fetcher(self._client, settings)

        def take(fetched: Fetched) -> bool:
            if fetched.error_code:
                raise BrokerRefused(
                    fetched.error_code, f"records of {fetched.partition} from offset {fetched.position}"
                )
            chunk = chunks[fetched.partition]
            self._take(chunk, fetched)
            self._read_bytes += len(fetched.records)
            if chunk.is_full or self._is_too_large(chunk):
                fetcher.positions.drop([fetched.partition])
            return not self._is_spent()

        fetcher.assign(
            {partition: chunk.low for partition, chunk in chunks.items()},
            {partition: chunk.high for partition, chunk in chunks.items()},
        )
        read_locked(fetcher, _POLL_MS, take)

    def _is_too_large(self, chunk: _Chunk) -> bool:
        # The newest records are at its end: a smaller chunk has them, too.
        return self._newest and chunk.high - chunk.low > 1 and chunk.read_bytes > _CHUNK_BYTES

    def _take(self, chunk: _Chunk, fetched: Fetched) -> None:
        """Add the matching records of a response to the chunk's."""
        try:
            states = decided_states(fetched) if chunk.is_decided else {}
        except CorruptBatch:
            states = {}
        has_matched = False
        for at, header in iter_headers(fetched.records):
            if self._newest and header.base_offset < chunk.low:
                # Fetches return whole batches: the rest of the first one needs no other read.
                chunk.low = max(chunk.floor, header.base_offset)
            if header.next_offset <= chunk.low or header.base_offset >= chunk.high or chunk.is_full:
                continue
            if not self._filter.allows(_batch_state(header, states.get(at, UNDECIDED))):
                continue
            if has_matched and self._is_late():
                # A response may expand to gigabytes: at least one batch of it is searched.
                chunk.position = header.base_offset
                return
            has_matched = True
            for record in matching_records(fetched, at, header, states.get(at, UNDECIDED), self._filter):
                if record.offset < chunk.high and (record.offset >= chunk.low or record.state == UNREADABLE):
                    self._add(chunk, record)
        chunk.read_bytes += len(fetched.records)
        chunk.position = fetched.next_offset

    def _add(self, chunk: _Chunk, record: StoredRecord) -> None:
        if chunk.is_full:
            return
        has_room = len(chunk.candidates) < self._keep and (self._kept_bytes < KEPT_BYTES or not chunk.candidates)
        if not has_room and not self._newest:
            chunk.is_full, chunk.high = True, record.offset
            return
        candidate = _Candidate(record)
        if record.size_bytes > _SMALL_BYTES:
            self._show_now(chunk.lane.partition, candidate)
        chunk.candidates.append(candidate)
        self._kept_bytes += candidate.size_bytes
        if not has_room:
            # Older ones are read again when they are needed.
            self._kept_bytes -= chunk.candidates.popleft().size_bytes
            chunk.floor = chunk.low = chunk.candidates[0].record.offset

    def _finish(self, chunk: _Chunk) -> None:
        """Move a lane's window beyond a chunk, and adjust the next one's size to how many records matched."""
        lane, covered = chunk.lane, chunk.position - chunk.low
        if self._newest and chunk.position < chunk.high:
            self._kept_bytes -= sum(candidate.size_bytes for candidate in chunk.candidates)
            lane.step = max(1, min(lane.step // 2, _fitting(chunk, covered)))
            return
        for candidate in chunk.candidates:
            if self._filter.allows(candidate.record.state):
                lane.candidates.append(candidate)
            else:
                self._kept_bytes -= candidate.size_bytes
        if self._newest:
            lane.candidates.reverse()
            lane.until = chunk.low
        else:
            lane.start = chunk.high if chunk.is_full else max(lane.start, min(chunk.position, chunk.high))
        wide = lane.step * 8 if len(lane.candidates) < min(self._keep, lane.step) // 2 + 1 else self._keep
        lane.step = max(1, min(wide, _MAX_STEP, _fitting(chunk, covered)))

    def _settle(self, candidates: Iterable[tuple[_Lane, _Candidate]]) -> None:
        """Look for the outcomes of undecided transactions."""
        undecided = {
            (lane.partition, candidate.record.offset): candidate
            for lane, candidate in candidates
            if candidate.record.state == UNDECIDED
        }
        outcomes = Outcomes()
        for (partition, offset), candidate in undecided.items():
            outcomes.wait_for(partition, candidate.record.batch.producer_id, offset)
        for settled in look_ahead(self._client, outcomes, self._windows.ends):
            candidate = undecided[settled.partition, settled.offset]
            candidate.record = replace(candidate.record, state=settled.state)


def _fitting(chunk: _Chunk, covered: int) -> int:
    """The number of offsets that fill half a chunk, by the size of those just read."""
    return _CHUNK_BYTES * max(1, covered) // (2 * max(1, chunk.read_bytes))


def _batch_state(header: BatchHeader, state: str) -> str:
    return MARKER if header.is_control else state if header.is_transactional else PLAIN
