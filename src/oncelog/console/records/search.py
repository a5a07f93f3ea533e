"""A search through all records of some partitions, as a stream of hits, their outcomes and progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from oncelog.admin.transactions.partition_offsets import Bounds
from oncelog.base.ids import TopicPartition
from oncelog.base.units import MIB
from oncelog.client.blocking.client import Client
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.console.records.read_lock import ANSWER_MS, held
from oncelog.console.records.record_states import (
    MAX_BATCH_BYTES,
    PLAIN,
    UNDECIDED,
    StoredRecord,
    decided_states,
    stored,
)
from oncelog.console.records.transaction_outcomes import Outcomes, Settled
from oncelog.records.batch import BatchHeader, crc_matches, iter_headers
from oncelog.records.errors import CorruptBatch
from oncelog.records.record import Record, read_record, records_data
from oncelog.records.varint import read_varint

# "Nothing found" is reported only after everything up to the initial end was read; a search that stops earlier gives
# the offsets at which it continues. A hit above the last stable offset may get its state later (`Settled`), when the
# search has read on to the marker.
#
# A batch is scanned as one block of bytes. Records are located only in a batch that contains the needle, and only
# matching ones are parsed.

PLACES: Final = ("anywhere", "key", "value", "header")
MAX_HITS: Final = 200
FETCH_BYTES: Final = 4 * MIB
PARTITION_BYTES: Final = 2 * MIB
_POLL_MS: Final = 300
_PROGRESS_MS: Final = 200
_MAX_UNREADABLE: Final = 20


@dataclass(frozen=True, slots=True)
class SearchTarget:
    needle: bytes
    place: str = "anywhere"

    def is_in(self, record: Record) -> bool:
        key, value = self.place in ("anywhere", "key"), self.place in ("anywhere", "value")
        return (
            (key and record.key is not None and self.needle in record.key)
            or (value and record.value is not None and self.needle in record.value)
            or (self.place in ("anywhere", "header") and any(self._in_header(*header) for header in record.headers))
        )

    def _in_header(self, name: str, value: bytes | None) -> bool:
        return self.needle in name.encode() or (value is not None and self.needle in value)


class ShownHit(NamedTuple):
    """A hit as a page shows it; a large record is cut."""

    partition: TopicPartition
    offset: int
    row: Mapping[str, Any]


class Hit(NamedTuple):
    """A matching record. Its state may be ``undecided``; a Settled follows then."""

    partition: TopicPartition
    record: StoredRecord


@dataclass(frozen=True, slots=True)
class Progress:
    """``done`` of ``total`` offsets are read; ``positions`` are the next ones by partition. ``complete``: everything
    was read. ``unreadable`` describes batches that could not be searched."""

    done: int
    total: int
    positions: Mapping[TopicPartition, int]
    hits: int
    complete: bool = False
    unreadable: tuple[str, ...] = ()


SearchEvent = Hit | ShownHit | Settled | Progress


def search(
    client: Client,
    target: SearchTarget,
    positions: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, Bounds],
    stopped: Callable[[], bool],
    shown: Callable[[Hit], SearchEvent] = lambda hit: hit,
) -> Iterator[SearchEvent]:
    """Yield hits, their states, and a Progress now and then; the last one says whether the search is complete.

    ``shown`` converts a hit under the read lock. Raises ClientError.
    """
    run = _Search(client, target, positions, bounds, stopped, shown)
    yield from run.part(
        {partition: partition_bounds.last_stable_offset for partition, partition_bounds in bounds.items()}, decided=True
    )
    yield from run.part(
        {partition: partition_bounds.end_offset for partition, partition_bounds in bounds.items()}, decided=False
    )
    yield from run.outcomes.ask_leaders(client)
    yield run.progress()


class _Search:
    def __init__(
        self,
        client: Client,
        target: SearchTarget,
        positions: Mapping[TopicPartition, int],
        bounds: Mapping[TopicPartition, Bounds],
        stopped: Callable[[], bool],
        shown: Callable[[Hit], SearchEvent],
    ) -> None:
        self._shown = shown
        self._client = client
        self._target = target
        self._stopped = stopped
        self._ends = {partition: partition_bounds.end_offset for partition, partition_bounds in bounds.items()}
        self._at = {partition: min(position, self._ends[partition]) for partition, position in positions.items()}
        self._total = self._left()
        self._hits = 0
        self._unreadable: list[str] = []
        self.outcomes = Outcomes()

    def part(self, until: Mapping[TopicPartition, int], *, decided: bool) -> Iterator[SearchEvent]:
        """Search up to ``until``; ``decided``: all transactions below it are decided, and leaders list the aborted
        ones."""
        at = {partition: position for partition, position in self._at.items() if position < until[partition]}
        if not at or self._is_over():
            return
        settings = FetchSettings(_POLL_MS, 1, FETCH_BYTES, PARTITION_BYTES, read_committed=decided)
        fetcher = Fetcher(self._client, settings)
        reported_ms = 0
        try:
            fetcher.assign(at, until)
            while len(fetcher) and not self._is_over():
                fetcher.wait(_POLL_MS)
                yield from self._step(fetcher, until, decided)
                if (now_ms := self._client.system.now_ms()) - reported_ms >= _PROGRESS_MS:
                    reported_ms = now_ms
                    yield self.progress()
        finally:
            fetcher.close()

    def _step(self, fetcher: Fetcher, until: Mapping[TopicPartition, int], decided: bool) -> list[SearchEvent]:
        events: list[SearchEvent] = []
        # Keep no record of a response after the lock is released.
        with held():
            for fetched in fetcher.arrived(ANSWER_MS):
                if fetched.error_code:
                    raise BrokerRefused(fetched.error_code, f"records of {fetched.partition}")
                scanned_now = self._scan(fetched, until[fetched.partition], decided)
                events += (self._shown(event) if isinstance(event, Hit) else event for event in scanned_now)
                if self._is_over():
                    break
        return events

    def progress(self) -> Progress:
        remaining = self._left()
        unreadable = tuple(self._unreadable)
        return Progress(self._total - remaining, self._total, dict(self._at), self._hits, not remaining, unreadable)

    def _left(self) -> int:
        return sum(self._ends[partition] - position for partition, position in self._at.items())

    def _is_over(self) -> bool:
        return self._hits >= MAX_HITS or self._stopped()

    def _scan(self, fetched: Fetched, until: int, decided: bool) -> Iterator[SearchEvent]:
        partition = fetched.partition
        for event in scanned(fetched, self._target, until, decided, self.outcomes):
            if isinstance(event, str):
                if len(self._unreadable) < _MAX_UNREADABLE:
                    self._unreadable.append(event)
                continue
            yield event
            if isinstance(event, Hit):
                self._hits += 1
                if self._hits >= MAX_HITS:
                    self._at[partition] = min(event.record.offset + 1, until)
                    return
        self._at[partition] = min(fetched.next_offset, until)


def scanned(
    fetched: Fetched, target: SearchTarget, until: int, decided: bool, outcomes: Outcomes
) -> Iterator[Hit | Settled | str]:
    """The matching records of a response below ``until``, and a sentence for each batch that cannot be read."""
    states: dict[int, str] | None = None
    for at, header in iter_headers(fetched.records):
        if header.next_offset <= fetched.position or header.base_offset >= until:
            continue
        try:
            if header.is_control:
                yield from outcomes.settled_by(fetched, at, header)
                continue
            if not crc_matches(fetched.records, at, header):
                raise CorruptBatch("its checksum is wrong")
            data = records_data(fetched.records, at, header, MAX_BATCH_BYTES)
            if target.needle not in data:
                continue
            state = PLAIN
            if header.is_transactional:
                states = (decided_states(fetched) if decided else {}) if states is None else states
                state = states.get(at, UNDECIDED)
            for record in records_with(data, header, target):
                if fetched.position <= record.offset < until:
                    if state == UNDECIDED:
                        outcomes.wait_for(fetched.partition, header.producer_id, record.offset)
                    yield Hit(fetched.partition, stored(record, header, state))
        except CorruptBatch as error:
            yield f"{fetched.partition}, the batch at offset {header.base_offset}: {error}"


def records_with(data: bytes, header: BatchHeader, target: SearchTarget) -> Iterator[Record]:
    """The matching records of ``records_data``. Raises CorruptBatch. One without the needle costs reading its length;
    one with it in another part than the target's costs locating that part."""
    needle, part = target.needle, {"key": 0, "value": 2}.get(target.place)
    append_time = header.max_timestamp if header.is_log_append_time else None
    at, match_at, size = 0, data.find(needle), len(data)
    for _ in range(header.record_count):
        if match_at < 0:
            return
        begin = at
        try:
            byte = data[at]
            length, at = ((byte >> 1) ^ -(byte & 1), at + 1) if byte < 0x80 else read_varint(data, at)
        except IndexError:
            raise CorruptBatch(f"record at {begin} reaches past the end") from None
        end = at + length
        if length <= 0 or end > size:
            raise CorruptBatch(f"record of {length} bytes at {begin}, {size - begin} left")
        if match_at < end:
            if part is None or _is_in_part(data, at, part, needle):
                _, offset_delta, timestamp_delta, key, value, headers = read_record(data, begin)
                timestamp = header.base_timestamp + timestamp_delta if append_time is None else append_time
                record = Record(header.base_offset + offset_delta, timestamp, key, value, headers)
                if target.is_in(record):
                    yield record
            match_at = data.find(needle, end)
        at = end


def _is_in_part(data: bytes, at: int, part: int, needle: bytes) -> bool:
    """True if the part of the record whose fields begin at ``at`` contains the needle. ``part`` is the number of
    varints between the offset delta and its length."""
    try:
        at += 1  # attributes
        while data[at] >= 0x80:
            at += 1
        at += 1
        while data[at] >= 0x80:
            at += 1
        byte = data[at + 1]
        length, at = ((byte >> 1) ^ -(byte & 1), at + 2) if byte < 0x80 else read_varint(data, at + 1)
        if part:
            length, at = read_varint(data, at + max(length, 0))
    except IndexError:
        raise CorruptBatch(f"record reaches past the end at {at}") from None
    return length > 0 and data.find(needle, at, at + length) >= 0
