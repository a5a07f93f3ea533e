"""The records of a dead letter topic (KIP-1191): the originals' keys and values, and headers with the cause.

The headers of the original are not copied, as in Apache Kafka. A record that cannot be read, or does not fit the dead
letter topic's ``max.message.bytes``, is a dead letter with headers alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.base.ids import GroupId, TopicPartition
from oncelog.base.units import MIB
from oncelog.core.share.model import DeadLetterCause, DeadLetters
from oncelog.records.errors import CorruptBatch, RecordTooLarge, TooMuchOutput
from oncelog.records.record import Record, read_records
from oncelog.storage.errors import OffsetOutOfRange
from oncelog.storage.log.read import read_batches
from oncelog.storage.segment.batch_scan import iter_batches

if TYPE_CHECKING:
    from oncelog.storage.log.partition_log import PartitionLog

MAX_READ_BYTES: Final = MIB
"""Bytes of originals that are read together."""
BATCH_BYTES: Final = 61
_RECORD_BYTES: Final = 30
"""Lengths, deltas and counts of a record: an upper bound."""
_HEADER_BYTES: Final = 10
_MESSAGES: Final = {
    DeadLetterCause.REJECTED: b"Offset rejected by client.",
    DeadLetterCause.TOO_MANY_DELIVERIES: b"Offset delivery count exceeded the threshold.",
}

KeyValue = tuple[bytes | None, bytes | None]


class Source(NamedTuple):
    """The group and partition of dead letters."""

    group_id: GroupId
    partition: TopicPartition

    def headers(self, offset: int, letters: DeadLetters) -> tuple[tuple[str, bytes], ...]:
        return (
            ("__dlq.errors.topic", self.partition.topic.encode()),
            ("__dlq.errors.partition", b"%d" % self.partition.partition),
            ("__dlq.errors.offset", b"%d" % offset),
            ("__dlq.errors.group", self.group_id.encode()),
            ("__dlq.errors.delivery.count", b"%d" % letters.delivery_count),
            ("__dlq.errors.message", _MESSAGES[letters.cause]),
        )


def originals(log: PartitionLog, first_offset: int, last_offset: int, max_bytes: int) -> dict[int, KeyValue]:
    """Keys and values of the records in a range of offsets, those that can be read within ``MAX_READ_BYTES``; none
    larger than ``max_bytes``."""
    try:
        chunks = read_batches(log, first_offset, max_bytes=MAX_READ_BYTES).chunks
        found = {}
        for file, position, size in chunks:
            for at, header in iter_batches(file, position, position + size):
                if header.base_offset > last_offset:
                    break
                if header.is_control:
                    continue
                data = file.read(at, header.size_bytes)
                for record in _readable(read_records(data, 0, header, max(max_bytes, MAX_READ_BYTES))):
                    if first_offset <= record.offset <= last_offset and _size_of(record) <= max_bytes:
                        found[record.offset] = record.key, record.value
        return found
    except (OffsetOutOfRange, OSError):
        return {}


def _readable(records: Iterator[Record]) -> Iterator[Record]:
    """The records up to the first that is damaged."""
    try:
        yield from records
    except (CorruptBatch, RecordTooLarge, TooMuchOutput):
        return


def _size_of(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"")


def encoded_size(record: Record) -> int:
    """An upper bound on the bytes of a record in its batch."""
    headers = sum(_HEADER_BYTES + len(name) + len(value or b"") for name, value in record.headers)
    return _RECORD_BYTES + _size_of(record) + headers
