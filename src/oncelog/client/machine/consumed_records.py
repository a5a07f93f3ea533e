"""Turns fetched batches into the records that an application sees.

Records below the requested position and control records are hidden, and with read_committed the batches of aborted
transactions: a producer counts as aborting from its first offset in the response's list until its abort marker
(KIP-98). Decompression is bounded. A CRC mismatch is an error, never a skip. Message sets (formats 0 and 1), if
requested, may precede batches, or follow them in a topic whose format was lowered; they have neither transactions nor
headers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from oncelog.base.ids import TopicPartition
from oncelog.base.units import MIB
from oncelog.client.errors import ClientError
from oncelog.client.machine.positions import Fetched
from oncelog.client.machine.whole_batches import formats
from oncelog.records.batch import BatchHeader, crc_matches, iter_headers
from oncelog.records.control import ControlType, control_type
from oncelog.records.errors import CorruptBatch
from oncelog.records.record import Headers, read_records

MAX_BATCH_BYTES: Final = 512 * MIB
"""Batches that decompress to more are refused."""
CREATE_TIME: Final = "create"
LOG_APPEND_TIME: Final = "logappend"
_WRAPPERS: Final = 8
"""The most levels of nested compressed messages, as in 0.8's consumers."""
NO_TIME: Final = "none"
"""The timestamp type of format 0, whose timestamp is −1."""


class UnreadableRecords(ClientError):
    """Batches are damaged; the message names partition and offset."""


class ConsumedRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int


def read_fetched(fetched: Fetched, *, read_committed: bool = False, check_crc: bool = True) -> Iterator[ConsumedRecord]:
    """The records of one response, in order. Raises UnreadableRecords."""
    if not fetched.has_message_sets:
        yield from _read_batches(fetched, read_committed, check_crc)
        return
    for start, end, is_message_set in formats(fetched.records):
        part = fetched._replace(records=fetched.records[start:end])
        yield from _read_messages(part) if is_message_set else _read_batches(part, read_committed, check_crc)


def read_message_set(records: memoryview, partition: TopicPartition) -> Iterator[ConsumedRecord]:
    """The records of a message set; their checksums are always verified. Raises CorruptBatch."""
    from oncelog.legacy.message_set import Limits, TimestampType, deep

    kinds = {TimestampType.CREATE_TIME: CREATE_TIME, TimestampType.LOG_APPEND_TIME: LOG_APPEND_TIME}
    topic, index = partition
    for message in deep(records, Limits(MAX_BATCH_BYTES, _WRAPPERS)):
        kind = kinds.get(message.timestamp_type, NO_TIME)
        yield ConsumedRecord(topic, index, message.offset, message.timestamp, kind, message.key, message.value, (), -1)


def _read_messages(fetched: Fetched) -> Iterator[ConsumedRecord]:
    try:
        for record in read_message_set(fetched.records, fetched.partition):
            if record.offset >= fetched.position:
                yield record
    except CorruptBatch as error:
        raise UnreadableRecords(f"{fetched.partition} cannot be read from {fetched.position}: {error}") from error


def _read_batches(fetched: Fetched, read_committed: bool, check_crc: bool) -> Iterator[ConsumedRecord]:
    topic, partition = fetched.partition
    position, records = fetched.position, fetched.records
    try:
        for at, header in visible_batches(fetched, read_committed):
            if check_crc and not crc_matches(records, at, header):
                raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} is wrong")
            kind = LOG_APPEND_TIME if header.is_log_append_time else CREATE_TIME
            epoch = header.partition_leader_epoch
            for offset, timestamp, key, value, headers in read_records(records, at, header, MAX_BATCH_BYTES):
                if offset >= position:
                    yield ConsumedRecord(topic, partition, offset, timestamp, kind, key, value, headers, epoch)
    except CorruptBatch as error:
        raise UnreadableRecords(f"{fetched.partition} cannot be read from offset {position}: {error}") from error


def visible_batches(fetched: Fetched, read_committed: bool) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers of the batches that an application may see. Raises CorruptBatch."""
    upcoming = sorted(fetched.aborted, key=lambda transaction: transaction[1], reverse=True) if read_committed else []
    aborting: set[int] = set()
    for at, header in iter_headers(fetched.records):
        while upcoming and upcoming[-1][1] <= header.last_offset:
            aborting.add(upcoming.pop()[0])
        if header.is_control:
            if header.producer_id in aborting and _is_abort(fetched, at, header):
                aborting.discard(header.producer_id)
            continue
        if header.is_transactional and header.producer_id in aborting:
            continue
        yield at, header


def _is_abort(fetched: Fetched, at: int, header: BatchHeader) -> bool:
    record = next(iter(read_records(fetched.records, at, header, MAX_BATCH_BYTES)), None)
    return record is not None and control_type(record.key) is ControlType.ABORT
