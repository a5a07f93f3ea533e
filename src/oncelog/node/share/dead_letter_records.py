"""The records of a dead letter topic (KIP-1191): the originals' keys and values, and headers with the cause.

The headers of the original are not copied, as in Apache Kafka. A record that cannot be read, does not fit the dead
letter topic's ``max.message.bytes``, or is in a compressed batch of more than a mebibyte (or that limit, if it is
higher), is a dead letter with headers alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.base.ids import GroupId, Offset, TopicId, TopicPartition
from oncelog.base.units import MIB
from oncelog.core.share.model import DeadLetterCause, DeadLetters
from oncelog.records.errors import CorruptBatch, RecordTooLarge, TooMuchOutput
from oncelog.records.record import Record, read_records
from oncelog.storage.errors import OffsetOutOfRange
from oncelog.storage.log.read import read_batches
from oncelog.storage.segment.batch_scan import iter_batches

if TYPE_CHECKING:
    from oncelog.records.batch import BatchHeader
    from oncelog.storage.log.partition_log import PartitionLog

MAX_READ_BYTES: Final = MIB
"""Bytes of originals that are read together, and of a compressed batch that is decompressed for them."""
MAX_BATCH_BYTES: Final = MIB
"""Bytes of dead letters after which a batch ends, also where the topic allows more."""
BATCH_BYTES: Final = 61
_RECORD_BYTES: Final = 30
"""Lengths, deltas and counts of a record: an upper bound."""
_HEADER_BYTES: Final = 10
_MESSAGES: Final = {
    DeadLetterCause.REJECTED: b"Offset rejected by client.",
    DeadLetterCause.TOO_MANY_DELIVERIES: b"Offset delivery count exceeded the threshold.",
}

KeyValue = tuple[bytes | None, bytes | None]
NO_RECORD: Final[KeyValue] = (None, None)


class Source(NamedTuple):
    """The group and partition of dead letters."""

    group_id: GroupId
    topic_id: TopicId
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


class Originals:
    """The records that the dead letters of one batch copy: each batch of a log is decoded once.

    It reads until ``MAX_READ_BYTES`` are read, or decompressed, but at least one batch.
    """

    def __init__(self, max_bytes: int) -> None:
        """``max_bytes``: of a key and value; larger ones are left out."""
        self._max_bytes = max_bytes
        self._left_bytes = MAX_READ_BYTES
        self._found: dict[tuple[TopicId, int, int], KeyValue] = {}
        # Base offsets of the batches that were decoded.
        self._decoded: set[tuple[TopicId, int, int]] = set()

    def get(self, source: Source, offset: int) -> KeyValue | None:
        """None: there is no such record, or it is damaged or too large."""
        return self._found.get((source.topic_id, source.partition.partition, offset))

    def read(self, source: Source, log: PartitionLog, first_offset: int, last_offset: int) -> int:
        """Read a range of offsets; returns the offset up to which all is known, so ``first_offset`` if nothing more
        is read now."""
        offset = first_offset
        while offset <= last_offset and self.get(source, offset) is not None:
            offset += 1
        if offset > last_offset or self._left_bytes <= 0:
            return offset
        if offset < log.log_start_offset:
            return min(last_offset + 1, log.log_start_offset)
        try:
            return self._read_batches(source, log, offset, last_offset)
        except (OffsetOutOfRange, OSError):
            return last_offset + 1

    def _read_batches(self, source: Source, log: PartitionLog, offset: int, last_offset: int) -> int:
        end = offset
        for file, position, size in read_batches(log, Offset(offset), max_bytes=self._left_bytes).chunks:
            for at, header in iter_batches(file, position, position + size):
                if header.base_offset > last_offset:
                    return last_offset + 1
                key = source.topic_id, source.partition.partition, header.base_offset
                if key not in self._decoded and not header.is_control:
                    if header.size_bytes > self._left_bytes < MAX_READ_BYTES:
                        return end
                    self._decoded.add(key)
                    self._decode(source, file.read(at, header.size_bytes), header)
                end = min(header.next_offset, last_offset + 1)
                if self._left_bytes <= 0:
                    return end
        # Without progress the log cannot be read here.
        return last_offset + 1 if end == offset else end

    def _decode(self, source: Source, data: bytes, header: BatchHeader) -> None:
        topic_id, partition = source.topic_id, source.partition.partition
        size = 0
        for record in _readable(read_records(data, 0, header, max(self._max_bytes, MAX_READ_BYTES))):
            size += _RECORD_BYTES + _size_of(record)
            if _size_of(record) <= self._max_bytes:
                self._found[topic_id, partition, record.offset] = record.key, record.value
        self._left_bytes -= max(size, header.size_bytes)


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
