"""Records of a partition as they lie in its log, each with what became of its transaction.

Below the last stable offset the leader says which transactions were aborted (Fetch, read_committed), and
``client.machine.consumed_records`` sorts the batches by it. Above it nothing is decided by that answer: a batch is open
if its producer has a transaction open there (DescribeProducers); else its marker is looked for further on.

The rule: no state is guessed. A transaction whose marker is not within what was read is ``ended``, and said to be so;
it is ``undecided`` where the leader does not say which are open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from oncelog.admin.transactions.partition_offsets import Bounds, bounds_of
from oncelog.admin.transactions.producers import describe_producers
from oncelog.base.ids import TopicPartition
from oncelog.base.units import INT64_MAX, KIB, MIB
from oncelog.client.blocking.client import EARLIEST, Client
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.client.machine.consumed_records import visible_batches
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.console.records.read_lock import read_in_turns
from oncelog.records.batch import CODEC_MASK, BatchHeader, crc_matches, iter_headers
from oncelog.records.control import ControlType, control_type
from oncelog.records.errors import CorruptBatch
from oncelog.records.record import Headers, Record, read_records, read_records_in_place

LARGEST_BATCH: Final = 32 * MIB
"""A batch that decompresses to more is not read, and said to be so."""
SLICE_BYTES: Final = 16 * MIB
"""Keys, values and headers of one slice; what is larger has a slice of its own."""
LOOK_AHEAD_BYTES: Final = 8 * MIB
"""So far behind the last record shown the markers of its transactions are looked for."""
_POLL_MS: Final = 100
_LARGE_RECORD: Final = 64 * KIB
"""Bytes of a record from which on a batch is read where it lies."""
PLAIN: Final = "plain"
COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
OPEN: Final = "open"
ENDED: Final = "ended"
UNDECIDED: Final = "undecided"
"""The state of a record whose transaction's marker a search or tail has not come to."""
MARKER: Final = "marker"
UNREADABLE: Final = "unreadable"


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record, or what stands in its place. ``state``: plain (no transaction), committed, aborted, open, ended (its
    outcome lies further on than was read), marker, unreadable. ``note`` says more of the last two."""

    offset: int
    timestamp_ms: int
    is_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: Headers
    state: str
    batch: BatchHeader
    note: str = ""

    @property
    def sequence(self) -> int | None:
        """The sequence of the record, None where its producer numbers none."""
        return None if self.batch.base_sequence < 0 else self.batch.base_sequence + self.offset - self.batch.base_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of its key, value and headers' values."""
        return len(self.key or b"") + len(self.value or b"") + sum(len(value or b"") for _, value in self.headers)

    def as_record(self) -> Record:
        return Record(self.offset, self.timestamp_ms, self.key, self.value, self.headers)


Show = Callable[[StoredRecord], Any]


@dataclass(frozen=True, slots=True)
class Slice:
    """Records from ``start`` on. ``next_offset`` is where the next slice begins; ``shown`` is what was made of each
    record, where something was."""

    records: list[StoredRecord]
    shown: list[Any]
    start: int
    next_offset: int
    log_start: int
    bounds: Bounds


def bounds_and_start(client: Client, where: TopicPartition) -> tuple[Bounds, int]:
    """The bounds of a partition and its first offset. Raises UnknownTopic, BrokerRefused, ClientError."""
    client.leader(where)
    found, unanswered = bounds_of(client, [where])
    if where not in found:
        raise ClientError(str(unanswered[0]) if unanswered else f"no offsets of {where}")
    return found[where], client.list_offsets({where: EARLIEST})[where].offset


def read_slice(
    client: Client,
    where: TopicPartition,
    start: int,
    count: int,
    show: Show | None = None,
    before: int = INT64_MAX,
) -> Slice:
    """Up to ``count`` records from ``start``, which is moved into the log, and below ``before``; fewer where they are
    large. With ``show`` each is shown in the turn in which it is read, and the records that are returned have no keys,
    values and headers. Raises ClientError."""
    bounds, log_start = bounds_and_start(client, where)
    position = start = max(log_start, min(start, bounds.end_offset))
    taken = _Taken(count, show)
    for until, decided in ((bounds.last_stable_offset, True), (bounds.end_offset, False)):
        until = min(until, before)
        if taken.full() or position >= until:
            continue
        taken.decided, taken.position = decided, position
        _read(client, where, position, until, decided, taken.take)
        position = taken.position
    records = taken.records
    if any(record.state == ENDED for record in records):
        records = _with_outcomes(client, where, records, bounds.end_offset)
    return Slice(records, taken.shown, start, position, log_start, bounds)


def _read(
    client: Client,
    where: TopicPartition,
    position: int,
    until: int,
    committed: bool,
    take: Callable[[Fetched], bool],
) -> None:
    """Give ``take`` the answers for a range of offsets, each in a turn, until it returns False."""

    def checked(fetched: Fetched) -> bool:
        if fetched.error_code:
            raise BrokerRefused(fetched.error_code, f"records of {where} from offset {position}")
        return take(fetched)

    settings = FetchSettings(_POLL_MS, max_bytes=4 * MIB, partition_max_bytes=MIB, read_committed=committed)
    fetcher = Fetcher(client, settings)
    try:
        fetcher.assign({where: position}, {where: until})
        read_in_turns(fetcher, _POLL_MS, checked)
    finally:
        fetcher.close()


class _Taken:
    """The records of a slice, up to ``count`` of them and ``SLICE_BYTES``."""

    def __init__(self, count: int, show: Show | None) -> None:
        self.records: list[StoredRecord] = []
        self.shown: list[Any] = []
        self._is_full = False
        self.position = 0
        """The offset to go on from."""
        self.decided = True
        """True while the answers say which transactions were aborted."""
        self._show = show
        self._count = count
        self._size_bytes = 0

    def full(self) -> bool:
        """True once there is a record that has no place any more."""
        return self._is_full

    def take(self, fetched: Fetched) -> bool:
        """Add the records of an answer, until it is full: of a large batch no more than that is unpacked. False once it
        is."""
        states = decided_states(fetched) if self.decided else {}
        for at, header in iter_headers(fetched.records):
            for record in stored_records(fetched, at, header, states.get(at, ENDED)):
                if record.offset < fetched.position and not (
                    record.state == UNREADABLE and header.next_offset > fetched.position
                ):
                    continue
                self._size_bytes += record.size_bytes
                if len(self.records) >= self._count or (self.records and self._size_bytes > SLICE_BYTES):
                    self._is_full, self.position = True, record.offset
                    return False
                self._add(record)
        self.position = fetched.next_offset
        return True

    def _add(self, one: StoredRecord) -> None:
        if self._show is not None:
            self.shown.append(self._show(one))
            one = replace(one, key=None, value=None, headers=())
        self.records.append(one)


def decided_states(fetched: Fetched) -> dict[int, str]:
    """The outcome of each batch of an answer for readers of committed records, by its position in it; it means
    something for the transactional ones."""
    visible = {at for at, _ in visible_batches(fetched, read_committed=True)}
    return {at: COMMITTED if at in visible else ABORTED for at, _ in iter_headers(fetched.records)}


def stored_records(fetched: Fetched, at: int, header: BatchHeader, state: str) -> Iterator[StoredRecord]:
    """The records of a batch, in ``state`` if it is transactional; one row in the place of what cannot be read."""
    state = state if header.is_transactional else PLAIN
    try:
        if not crc_matches(fetched.records, at, header):
            raise CorruptBatch("its checksum is wrong")
        for record in _records_of(fetched, at, header):
            if header.is_control:
                yield stored(record, header, MARKER, _marker(record))
            else:
                yield stored(record, header, state)
    except CorruptBatch as error:
        yield StoredRecord(
            header.base_offset, header.max_timestamp, False, None, None, (), UNREADABLE, header, str(error)
        )


def _records_of(fetched: Fetched, at: int, header: BatchHeader) -> Iterator[Record]:
    if header.attributes & CODEC_MASK or not _LARGE_RECORD * header.record_count < header.size_bytes <= LARGEST_BATCH:
        return read_records(fetched.records, at, header, LARGEST_BATCH)
    return read_records_in_place(fetched.records, at, header)


def stored(one: Record, header: BatchHeader, state: str, note: str = "") -> StoredRecord:
    append_time = header.is_log_append_time
    return StoredRecord(one.offset, one.timestamp, append_time, one.key, one.value, one.headers, state, header, note)


def _marker(one: Record) -> str:
    kind = control_type(one.key)
    return kind.name.lower().replace("_", " ") if kind is not ControlType.UNKNOWN else "of an unknown type"


def _with_outcomes(
    client: Client, where: TopicPartition, records: list[StoredRecord], end_offset: int
) -> list[StoredRecord]:
    """Records above the last stable offset with the state that leader and markers give them."""
    found = describe_producers(client, [where], open_only=True)
    opened = {(row.producer_id): row.start_offset for row in found.rows}
    waiting = {record.batch.producer_id for record in records if record.state == ENDED}
    markers: dict[int, list[tuple[int, str]]] = {}
    read = 0
    first = min(record.batch.base_offset for record in records if record.state == ENDED)

    def look(fetched: Fetched) -> bool:
        nonlocal read
        for at, header in iter_headers(fetched.records):
            if header.is_control and header.producer_id in waiting:
                outcome = marker_outcome(fetched, at, header)
                if outcome is not None:
                    markers.setdefault(header.producer_id, []).append((header.base_offset, outcome))
        read += len(fetched.records)
        return read <= LOOK_AHEAD_BYTES

    _read(client, where, first, end_offset, False, look)
    without = UNDECIDED if where in found.failed else ENDED
    return [
        replace(record, state=_outcome(record, opened, markers, without)) if record.state == ENDED else record
        for record in records
    ]


def marker_outcome(fetched: Fetched, at: int, header: BatchHeader) -> str | None:
    """Committed or aborted, by a control batch; None for one that ends no transaction. Raises CorruptBatch."""
    one = next(iter(read_records(fetched.records, at, header, LARGEST_BATCH)), None)
    kind = None if one is None else control_type(one.key)
    return {ControlType.COMMIT: COMMITTED, ControlType.ABORT: ABORTED}.get(kind) if kind is not None else None


def _outcome(
    one: StoredRecord, opened: Mapping[int, int | None], markers: Mapping[int, list[tuple[int, str]]], without: str
) -> str:
    """The first marker of its producer behind a record; without one it is open if its leader says so."""
    for offset, outcome in markers.get(one.batch.producer_id, []):
        if offset > one.offset:
            return outcome
    begins = opened.get(one.batch.producer_id)
    return OPEN if begins is not None and one.offset >= begins else without
