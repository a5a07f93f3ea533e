"""Records of a partition as they lie in its log, each with the outcome of its transaction.

Below the last stable offset the leader lists the aborted transactions (Fetch, read_committed). Above it a batch is open
if its producer has an open transaction there (DescribeProducers); else its marker is searched for further on. No state
is guessed: without its marker, a transaction is ``ended``, or ``undecided`` if the leader did not list the open ones.
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
from oncelog.console.records.read_lock import read_locked
from oncelog.records.batch import CODEC_MASK, BatchHeader, crc_matches, iter_headers
from oncelog.records.control import ControlType, control_type
from oncelog.records.errors import CorruptBatch
from oncelog.records.record import Headers, Record, read_records, read_records_in_place

MAX_BATCH_BYTES: Final = 32 * MIB  # A batch that decompresses to more is reported as unreadable.
SLICE_BYTES: Final = 16 * MIB  # Keys, values and headers of one slice; a larger record is a slice of its own.
LOOK_AHEAD_BYTES: Final = 8 * MIB  # Read this far past the last record shown in search of its transaction's marker.
_POLL_MS: Final = 100
_LARGE_RECORD: Final = 64 * KIB  # Batches of larger records are parsed in place.
PLAIN: Final = "plain"
COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
OPEN: Final = "open"
ENDED: Final = "ended"
UNDECIDED: Final = "undecided"  # A search or tail has not reached the transaction's marker.
MARKER: Final = "marker"
UNREADABLE: Final = "unreadable"


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record, or a placeholder for one.

    ``state``: plain (no transaction), committed, aborted, open, ended (its marker lies further on than was read),
    undecided, marker, unreadable. ``note`` explains the last two.
    """

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
        """The record's sequence number; None for a non-idempotent producer."""
        return None if self.batch.base_sequence < 0 else self.batch.base_sequence + self.offset - self.batch.base_offset

    @property
    def size_bytes(self) -> int:
        return len(self.key or b"") + len(self.value or b"") + sum(len(value or b"") for _, value in self.headers)

    def as_record(self) -> Record:
        return Record(self.offset, self.timestamp_ms, self.key, self.value, self.headers)


Show = Callable[[StoredRecord], Any]


@dataclass(frozen=True, slots=True)
class Slice:
    """Records from ``start`` to ``next_offset``; ``shown`` has the result of ``show`` for each."""

    records: list[StoredRecord]
    shown: list[Any]
    start: int
    next_offset: int
    log_start: int
    bounds: Bounds


def bounds_and_start(client: Client, partition: TopicPartition) -> tuple[Bounds, int]:
    """The bounds of a partition and its first offset. Raises UnknownTopic, BrokerRefused, ClientError."""
    client.leader(partition)
    bounds, unanswered = bounds_of(client, [partition])
    if partition not in bounds:
        raise ClientError(str(unanswered[0]) if unanswered else f"no broker returned offsets of {partition}")
    return bounds[partition], client.list_offsets({partition: EARLIEST})[partition].offset


def read_slice(
    client: Client,
    partition: TopicPartition,
    start: int,
    count: int,
    show: Show | None = None,
    before: int = INT64_MAX,
) -> Slice:
    """Up to ``count`` records from ``start``, which is clamped to the log, and below ``before``; fewer if they are
    large.

    ``show`` is called for each under the read lock; the records returned then have no keys, values and headers. Raises
    ClientError.
    """
    bounds, log_start = bounds_and_start(client, partition)
    position = start = max(log_start, min(start, bounds.end_offset))
    reader = _SliceReader(count, show)
    for until, decided in ((bounds.last_stable_offset, True), (bounds.end_offset, False)):
        until = min(until, before)
        if reader.full() or position >= until:
            continue
        reader.decided, reader.position = decided, position
        _read(client, partition, position, until, decided, reader.take)
        position = reader.position
    records = reader.records
    if any(record.state == ENDED for record in records):
        records = _with_outcomes(client, partition, records, bounds.end_offset)
    return Slice(records, reader.shown, start, position, log_start, bounds)


def _read(
    client: Client,
    partition: TopicPartition,
    position: int,
    until: int,
    committed: bool,
    take: Callable[[Fetched], bool],
) -> None:
    """Pass the responses for a range of offsets to ``take``, each under the read lock, until it returns False."""

    def checked(fetched: Fetched) -> bool:
        if fetched.error_code:
            raise BrokerRefused(fetched.error_code, f"records of {partition} from offset {position}")
        return take(fetched)

    settings = FetchSettings(_POLL_MS, max_bytes=4 * MIB, partition_max_bytes=MIB, read_committed=committed)
    fetcher = Fetcher(client, settings)
    try:
        fetcher.assign({partition: position}, {partition: until})
        read_locked(fetcher, _POLL_MS, checked)
    finally:
        fetcher.close()


class _SliceReader:
    def __init__(self, count: int, show: Show | None) -> None:
        self.records: list[StoredRecord] = []
        self.shown: list[Any] = []
        self._is_full = False
        self.position = 0  # The next offset to read.
        self.decided = True  # True while the responses list the aborted transactions.
        self._show = show
        self._count = count
        self._size_bytes = 0

    def full(self) -> bool:
        return self._is_full

    def take(self, fetched: Fetched) -> bool:
        """Add the records of a response; False once full. Only as much of a large batch is unpacked as fits."""
        states = decided_states(fetched) if self.decided else {}
        for at, header in iter_headers(fetched.records):
            for record in stored_records(fetched, at, header, states.get(at, ENDED)):
                # A fetch returns whole batches, so the first may begin before the position.
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

    def _add(self, record: StoredRecord) -> None:
        if self._show is not None:
            self.shown.append(self._show(record))
            # The content must not outlive the read lock.
            record = replace(record, key=None, value=None, headers=())
        self.records.append(record)


def decided_states(fetched: Fetched) -> dict[int, str]:
    """The outcome of each batch of a read_committed response, by position; only for transactional ones."""
    visible = {at for at, _ in visible_batches(fetched, read_committed=True)}
    return {at: COMMITTED if at in visible else ABORTED for at, _ in iter_headers(fetched.records)}


def stored_records(fetched: Fetched, at: int, header: BatchHeader, state: str) -> Iterator[StoredRecord]:
    """The records of a batch, in ``state`` if it is transactional; one placeholder if it cannot be read."""
    state = state if header.is_transactional else PLAIN
    try:
        if not crc_matches(fetched.records, at, header):
            raise CorruptBatch("its CRC does not match")
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
    if header.attributes & CODEC_MASK or not _LARGE_RECORD * header.record_count < header.size_bytes <= MAX_BATCH_BYTES:
        return read_records(fetched.records, at, header, MAX_BATCH_BYTES)
    return read_records_in_place(fetched.records, at, header)


def stored(record: Record, header: BatchHeader, state: str, note: str = "") -> StoredRecord:
    append_time = header.is_log_append_time
    return StoredRecord(
        record.offset, record.timestamp, append_time, record.key, record.value, record.headers, state, header, note
    )


def _marker(record: Record) -> str:
    kind = control_type(record.key)
    return kind.name.lower().replace("_", " ") if kind is not ControlType.UNKNOWN else "of an unknown type"


def _with_outcomes(
    client: Client, partition: TopicPartition, records: list[StoredRecord], end_offset: int
) -> list[StoredRecord]:
    producers = describe_producers(client, [partition], open_only=True)
    opened = {(row.producer_id): row.start_offset for row in producers.rows}
    waiting = {record.batch.producer_id for record in records if record.state == ENDED}
    markers: dict[int, list[tuple[int, str]]] = {}
    read = 0
    first = min(record.batch.base_offset for record in records if record.state == ENDED)

    def collect_markers(fetched: Fetched) -> bool:
        nonlocal read
        for at, header in iter_headers(fetched.records):
            if header.is_control and header.producer_id in waiting:
                outcome = marker_outcome(fetched, at, header)
                if outcome is not None:
                    markers.setdefault(header.producer_id, []).append((header.base_offset, outcome))
        read += len(fetched.records)
        return read <= LOOK_AHEAD_BYTES

    _read(client, partition, first, end_offset, False, collect_markers)
    without = UNDECIDED if partition in producers.failed else ENDED
    return [
        replace(record, state=_outcome(record, opened, markers, without)) if record.state == ENDED else record
        for record in records
    ]


def marker_outcome(fetched: Fetched, at: int, header: BatchHeader) -> str | None:
    """Committed or aborted, for a control batch; None if it does not end a transaction. Raises CorruptBatch."""
    record = next(iter(read_records(fetched.records, at, header, MAX_BATCH_BYTES)), None)
    kind = None if record is None else control_type(record.key)
    return {ControlType.COMMIT: COMMITTED, ControlType.ABORT: ABORTED}.get(kind) if kind is not None else None


def _outcome(
    record: StoredRecord, opened: Mapping[int, int | None], markers: Mapping[int, list[tuple[int, str]]], without: str
) -> str:
    """The outcome by the producer's first marker after the record; without one it is open if the leader says so."""
    for offset, outcome in markers.get(record.batch.producer_id, []):
        if offset > record.offset:
            return outcome
    begins = opened.get(record.batch.producer_id)
    return OPEN if begins is not None and record.offset >= begins else without
