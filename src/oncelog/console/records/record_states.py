"""Records of a partition as they lie in its log, each with what became of its transaction.

Below the last stable offset the leader says which transactions were aborted (Fetch, read_committed), and
``client.machine.consumed_records`` sorts the batches by it. Above it nothing is decided by that answer: a batch is open
if its producer has a transaction open there (DescribeProducers); else its marker is looked for further on.

The rule: no state is guessed. A transaction whose marker is not within what was read is ``ended``, and said to be so;
it is ``undecided`` where the leader does not say which are open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from oncelog.admin.transactions.partition_offsets import Bounds, bounds_of
from oncelog.admin.transactions.producers import describe_producers
from oncelog.base.ids import TopicPartition
from oncelog.base.units import MIB
from oncelog.client.blocking.client import EARLIEST, Client
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.client.machine.consumed_records import visible_batches
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.records.batch import BatchHeader, crc_matches, iter_headers
from oncelog.records.control import ControlType, control_type
from oncelog.records.errors import CorruptBatch
from oncelog.records.record import Headers, Record, read_records

LARGEST_BATCH: Final = 32 * MIB
"""A batch that decompresses to more is not read, and said to be so."""
SLICE_BYTES: Final = 16 * MIB
"""Keys, values and headers of one slice; what is larger has a slice of its own."""
LOOK_AHEAD_BYTES: Final = 8 * MIB
"""So far behind the last record shown the markers of its transactions are looked for."""
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
        """The record alone."""
        return Record(self.offset, self.timestamp_ms, self.key, self.value, self.headers)


@dataclass(frozen=True, slots=True)
class Slice:
    """Records from ``start`` on. ``next_offset`` is where the next slice begins."""

    records: list[StoredRecord]
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


def read_slice(client: Client, where: TopicPartition, start: int, count: int) -> Slice:
    """Up to ``count`` records from ``start``, which is moved into the log; fewer where they are large. Raises
    ClientError."""
    bounds, log_start = bounds_and_start(client, where)
    position = start = max(log_start, min(start, bounds.end_offset))
    taken = _Taken(count)
    for until, decided in ((bounds.last_stable_offset, True), (bounds.end_offset, False)):
        if taken.full() or position >= until:
            continue
        for fetched in _fetch(client, where, position, until, decided):
            taken.take(fetched, decided_states(fetched) if decided else {})
            position = fetched.next_offset
            if taken.full():
                break
    records = taken.records
    if taken.full():
        position = records.pop().offset
    if any(one.state == ENDED for one in records):
        records = _with_outcomes(client, where, records, bounds.end_offset)
    return Slice(records, start, position, log_start, bounds)


def _fetch(client: Client, where: TopicPartition, position: int, until: int, committed: bool) -> Iterator[Fetched]:
    settings = FetchSettings(max_wait_ms=100, max_bytes=4 * MIB, partition_max_bytes=MIB, read_committed=committed)
    for fetched in client.fetch({where: position}, until={where: until}, settings=settings):
        if fetched.error_code:
            raise BrokerRefused(fetched.error_code, f"records of {where} from offset {position}")
        yield fetched


class _Taken:
    """The records of a slice, and the first behind it: what is over ``count`` of them, or over ``SLICE_BYTES``."""

    def __init__(self, count: int) -> None:
        self.records: list[StoredRecord] = []
        self._is_full = False
        self._count = count
        self._size_bytes = 0

    def full(self) -> bool:
        """True once the first behind the slice is there, too."""
        return self._is_full

    def take(self, fetched: Fetched, states: Mapping[int, str]) -> None:
        """Add the records of an answer, until it is full: of a large batch no more than that is unpacked."""
        for at, header in iter_headers(fetched.records):
            for one in stored_records(fetched, at, header, states.get(at, ENDED)):
                if one.offset < fetched.position and not (
                    one.state == UNREADABLE and header.next_offset > fetched.position
                ):
                    continue
                self.records.append(one)
                self._size_bytes += one.size_bytes
                much = self._size_bytes > SLICE_BYTES and len(self.records) > 1
                self._is_full = much or len(self.records) > self._count
                if self._is_full:
                    return


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
        for one in read_records(fetched.records, at, header, LARGEST_BATCH):
            if header.is_control:
                yield stored(one, header, MARKER, _marker(one))
            else:
                yield stored(one, header, state)
    except CorruptBatch as error:
        yield StoredRecord(
            header.base_offset, header.max_timestamp, False, None, None, (), UNREADABLE, header, str(error)
        )


def stored(one: Record, header: BatchHeader, state: str, note: str = "") -> StoredRecord:
    """A record of a batch."""
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
    opened = {(one.producer_id): one.start_offset for one in found.rows}
    waiting = {one.batch.producer_id for one in records if one.state == ENDED}
    markers: dict[int, list[tuple[int, str]]] = {}
    read = 0
    first = min(one.batch.base_offset for one in records if one.state == ENDED)
    for fetched in _fetch(client, where, first, end_offset, committed=False):
        for at, header in iter_headers(fetched.records):
            if header.is_control and header.producer_id in waiting:
                outcome = marker_outcome(fetched, at, header)
                if outcome is not None:
                    markers.setdefault(header.producer_id, []).append((header.base_offset, outcome))
        read += len(fetched.records)
        if read > LOOK_AHEAD_BYTES:
            break
    without = UNDECIDED if where in found.failed else ENDED
    return [
        replace(one, state=_outcome(one, opened, markers, without)) if one.state == ENDED else one for one in records
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
