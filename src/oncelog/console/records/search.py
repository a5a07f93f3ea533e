"""A search through all records of some partitions, told step by step: hits, what became of them, and how far it is.

The rules: "nothing found" is said only when everything up to the end at the start was read; an end before that names
the offsets where it goes on. A hit says the state of its transaction, or gets it later (``Settled``): below the last
stable offset the leader knows the aborted ones, above it the markers are waited for.

A batch is scanned as one column of bytes: only where it has what is looked for are records found, by their lengths, and
only those that have it are taken apart.
"""

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
from oncelog.console.records.read_lock import ANSWER_MS, turn
from oncelog.console.records.record_states import (
    LARGEST_BATCH,
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

PLACES: Final = ("anywhere", "key", "value", "header")
MOST_HITS: Final = 200
FETCH_BYTES: Final = 4 * MIB
PARTITION_BYTES: Final = 2 * MIB
_POLL_MS: Final = 300
_PROGRESS_MS: Final = 200
_MOST_UNREADABLE: Final = 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """The aim of a search: bytes that a key, a value, or the name or value of a header contains."""

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
    """A hit as somebody shows it: of a large record, what is shown."""

    where: TopicPartition
    offset: int
    row: Mapping[str, Any]


class Hit(NamedTuple):
    """A record that has it; its state may be ``undecided``, and follow as Settled."""

    where: TopicPartition
    record: StoredRecord


@dataclass(frozen=True, slots=True)
class Progress:
    """``done`` of ``total`` offsets are read; ``positions`` is where each partition goes on. ``complete``: all was
    read. ``unreadable`` names batches that could not be looked into."""

    done: int
    total: int
    positions: Mapping[TopicPartition, int]
    hits: int
    complete: bool = False
    unreadable: tuple[str, ...] = ()


SearchEvent = Hit | ShownHit | Settled | Progress


def search(
    client: Client,
    wanted: Wanted,
    positions: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, Bounds],
    stopped: Callable[[], bool],
    shown: Callable[[Hit], SearchEvent] = lambda hit: hit,
) -> Iterator[SearchEvent]:
    """Hits, their states, and now and then a Progress; the last one says whether it is complete. ``shown`` makes of a
    hit what is told of it. Raises ClientError."""
    run = _Search(client, wanted, positions, bounds, stopped, shown)
    yield from run.part({where: one.last_stable_offset for where, one in bounds.items()}, decided=True)
    yield from run.part({where: one.end_offset for where, one in bounds.items()}, decided=False)
    yield from run.outcomes.by_leaders(client)
    yield run.progress()


class _Search:
    """A search under way; ``at`` is the next offset of each partition."""

    def __init__(
        self,
        client: Client,
        wanted: Wanted,
        positions: Mapping[TopicPartition, int],
        bounds: Mapping[TopicPartition, Bounds],
        stopped: Callable[[], bool],
        shown: Callable[[Hit], SearchEvent],
    ) -> None:
        self._shown = shown
        self._client = client
        self._wanted = wanted
        self._stopped = stopped
        self._ends = {where: one.end_offset for where, one in bounds.items()}
        self._at = {where: min(position, self._ends[where]) for where, position in positions.items()}
        self._total = self._left()
        self._hits = 0
        self._unreadable: list[str] = []
        self.outcomes = Outcomes()

    def part(self, until: Mapping[TopicPartition, int], *, decided: bool) -> Iterator[SearchEvent]:
        """Search up to ``until``; ``decided``: everything below it is, and the leaders say how."""
        at = {where: position for where, position in self._at.items() if position < until[where]}
        if not at or self._is_over():
            return
        settings = FetchSettings(_POLL_MS, 1, FETCH_BYTES, PARTITION_BYTES, read_committed=decided)
        fetcher = Fetcher(self._client, settings)
        told_ms = 0
        try:
            fetcher.assign(at, until)
            while len(fetcher) and not self._is_over():
                fetcher.wait(_POLL_MS)
                yield from self._step(fetcher, until, decided)
                if (now_ms := self._client.system.now_ms()) - told_ms >= _PROGRESS_MS:
                    told_ms = now_ms
                    yield self.progress()
        finally:
            fetcher.close()

    def _step(self, fetcher: Fetcher, until: Mapping[TopicPartition, int], decided: bool) -> list[SearchEvent]:
        """The news of the answers that have come; of their records nothing is kept."""
        told: list[SearchEvent] = []
        with turn():
            for fetched in fetcher.arrived(ANSWER_MS):
                if fetched.error_code:
                    raise BrokerRefused(fetched.error_code, f"records of {fetched.partition}")
                scanned_now = self._scan(fetched, until[fetched.partition], decided)
                told += (self._shown(one) if isinstance(one, Hit) else one for one in scanned_now)
                if self._is_over():
                    break
        return told

    def progress(self) -> Progress:
        left = self._left()
        unreadable = tuple(self._unreadable)
        return Progress(self._total - left, self._total, dict(self._at), self._hits, not left, unreadable)

    def _left(self) -> int:
        return sum(self._ends[where] - position for where, position in self._at.items())

    def _is_over(self) -> bool:
        return self._hits >= MOST_HITS or self._stopped()

    def _scan(self, fetched: Fetched, until: int, decided: bool) -> Iterator[SearchEvent]:
        where = fetched.partition
        for found in scanned(fetched, self._wanted, until, decided, self.outcomes):
            if isinstance(found, str):
                if len(self._unreadable) < _MOST_UNREADABLE:
                    self._unreadable.append(found)
                continue
            yield found
            if isinstance(found, Hit):
                self._hits += 1
                if self._hits >= MOST_HITS:
                    self._at[where] = min(found.record.offset + 1, until)
                    return
        self._at[where] = min(fetched.next_offset, until)


def scanned(
    fetched: Fetched, wanted: Wanted, until: int, decided: bool, outcomes: Outcomes
) -> Iterator[Hit | Settled | str]:
    """The records of an answer that have it, below ``until``; a sentence for each batch that cannot be read."""
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
            data = records_data(fetched.records, at, header, LARGEST_BATCH)
            if wanted.needle not in data:
                continue
            state = PLAIN
            if header.is_transactional:
                states = (decided_states(fetched) if decided else {}) if states is None else states
                state = states.get(at, UNDECIDED)
            for record in records_with(data, header, wanted):
                if fetched.position <= record.offset < until:
                    if state == UNDECIDED:
                        outcomes.wait_for(fetched.partition, header.producer_id, record.offset)
                    yield Hit(fetched.partition, stored(record, header, state))
        except CorruptBatch as error:
            yield f"{fetched.partition}, the batch at offset {header.base_offset}: {error}"


def records_with(data: bytes, header: BatchHeader, wanted: Wanted) -> Iterator[Record]:
    """The records of ``records_data`` that have it. Raises CorruptBatch.

    Records without it cost a length each; of those that have it elsewhere than in the key or value asked for, no more
    is read than where these lie.
    """
    needle, part = wanted.needle, {"key": 0, "value": 2}.get(wanted.place)
    append_time = header.max_timestamp if header.is_log_append_time else None
    at, found, size = 0, data.find(needle), len(data)
    for _ in range(header.record_count):
        if found < 0:
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
        if found < end:
            if part is None or _is_in_part(data, at, part, needle):
                _, offset_delta, timestamp_delta, key, value, headers = read_record(data, begin)
                timestamp = header.base_timestamp + timestamp_delta if append_time is None else append_time
                record = Record(header.base_offset + offset_delta, timestamp, key, value, headers)
                if wanted.is_in(record):
                    yield record
            found = data.find(needle, end)
        at = end


def _is_in_part(data: bytes, at: int, part: int, needle: bytes) -> bool:
    """True if the key, or value, of the record whose fields begin at ``at`` has it; ``part`` counts the variable-length
    integers behind the time and offset up to its length."""
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
