"""Records as they lie in their log, each with the outcome of its transaction.

Below the last stable offset the leader lists the aborted transactions (Fetch, read_committed). Above it the outcome is
looked for (``transaction_outcomes``). No state is guessed: without its marker, a transaction is ``ended``, or
``undecided`` if the leader did not list the open ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from oncelog.base.units import KIB, MIB
from oncelog.client.machine.consumed_records import visible_batches
from oncelog.client.machine.positions import Fetched
from oncelog.records.batch import CODEC_MASK, BatchHeader, crc_matches, iter_headers
from oncelog.records.control import ControlType, control_type
from oncelog.records.errors import CorruptBatch
from oncelog.records.record import Headers, Record, read_records, read_records_in_place

MAX_BATCH_BYTES: Final = 32 * MIB  # A batch that decompresses to more is reported as unreadable.
_LARGE_RECORD: Final = 64 * KIB  # Batches of larger records are parsed in place.
PLAIN: Final = "plain"
COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
OPEN: Final = "open"
ENDED: Final = "ended"
UNDECIDED: Final = "undecided"  # The transaction's marker has not been read yet.
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
        yield unreadable(header, error)


def unreadable(header: BatchHeader, error: CorruptBatch) -> StoredRecord:
    """The placeholder of a batch."""
    return StoredRecord(header.base_offset, header.max_timestamp, False, None, None, (), UNREADABLE, header, str(error))


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


def marker_outcome(fetched: Fetched, at: int, header: BatchHeader) -> str | None:
    """Committed or aborted, for a control batch; None if it does not end a transaction. Raises CorruptBatch."""
    record = next(iter(read_records(fetched.records, at, header, MAX_BATCH_BYTES)), None)
    kind = None if record is None else control_type(record.key)
    return {ControlType.COMMIT: COMMITTED, ControlType.ABORT: ABORTED}.get(kind) if kind is not None else None
