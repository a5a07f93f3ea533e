"""Produce, versions 0 to 2: message sets of format 0 or 1, stored as record batches (KIP-31, KIP-32).

Version 1 tells of throttling, version 2 of the time that the broker has set; each may carry either format. A set is
checked as Apache Kafka 3.9 does, made a batch, and appended as any other: the topic's own rules for keys, timestamps
and compression hold. A message that is cut at the end of the set is dropped, and an empty set is answered without an
error and without an offset. Without a producer id nothing is idempotent.

Sets that may be large are converted by a worker.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.units import KIB
from oncelog.handlers.produce.handler import append_and_answer
from oncelog.handlers.produce.partition_append import PartitionAppend, appends_of
from oncelog.handlers.support.waits import Offload, Steps
from oncelog.records.batch import MAGIC, magic_at
from oncelog.records.errors import CorruptBatch, InvalidSet, TooMuchOutput, TruncatedBatch, UnsupportedMagic
from oncelog.records.message_set.conversion import up_converted
from oncelog.records.message_set.entry import LOG_OVERHEAD, Entry, ensure_crc, shallow
from oncelog.wire.messages.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from oncelog.handlers.support.context import Context

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.CORRUPT_MESSAGE: "a checksum or the structure of a message is wrong",
    ErrorCode.MESSAGE_TOO_LARGE: "a message, or the batch that a set becomes, is larger than max.message.bytes",
    ErrorCode.INVALID_RECORD: "messages of both formats, one of them compressed among others, or compressed twice",
}

AT_ONCE_BYTES: Final = 16 * KIB
"""Bytes of messages, uncompressed, that are converted at once."""


class _TooLarge(Exception):
    """A message is larger than the topic takes."""


class _Set(NamedTuple):
    """A message set that is to become a batch."""

    each: PartitionAppend
    entries: list[Entry]
    log_append_time: bool
    max_bytes: int


def handle(request: ProduceRequest, context: Context) -> Steps[ProduceResponse | None]:
    """Convert every partition's messages, then go on as with today's versions."""
    response = ProduceResponse()
    appends, large, left = [], [], AT_ONCE_BYTES
    for each in appends_of(request, response, context):
        found = _set_of(each, context)
        if found is not None and not found.entries:
            continue  # its answer says neither an error nor an offset
        appends.append(each)
        if found is None:
            continue
        batch = _converted_at_once(found, left)
        if batch is None:
            large.append(found)
        else:
            left -= min(left, len(each.records))
            _take_over(each, batch)
    if large:
        batches: list[bytearray | CorruptBatch] = yield Offload(_converted_each(large))
        for found, batch in zip(large, batches, strict=True):
            _take_over(found.each, batch)
    return (yield from append_and_answer(request, response, appends, context))


def _set_of(each: PartitionAppend, context: Context) -> _Set | None:
    """The message set, None where there is none to convert: it is refused, or a batch, which is taken as it is, as by
    Apache Kafka."""
    if magic_at(each.records) == MAGIC:
        return None
    each.attributes = 0  # those of a batch are not there
    if not each.is_refused:
        each.resolve(context.partitions)
    if each.leader is None:
        return None
    log = each.leader.log
    try:
        entries = entries_of(each.records, log.config.max_message_bytes)
    except (CorruptBatch, _TooLarge) as error:
        each.refuse(_error_code(error))
        return None
    return _Set(each, entries, log.config.log_append_time, log.storage.max_decompressed_bytes)


def _take_over(each: PartitionAppend, batch: bytearray | CorruptBatch) -> None:
    if isinstance(batch, CorruptBatch):
        each.refuse(_error_code(batch))
    else:
        each.replace_records(batch)


def _converted_each(sets: Sequence[_Set]) -> Generator[None, None, list[bytearray | CorruptBatch]]:
    """For the worker: the batches, or why there is none."""
    batches: list[bytearray | CorruptBatch] = []
    for each in sets:
        try:
            batches.append((yield from _converted(each, each.max_bytes)))
        except CorruptBatch as error:
            batches.append(error)
        yield
    return batches


def _converted(found: _Set, max_bytes: int) -> Generator[None, None, bytearray]:
    return up_converted(found.each.records, found.entries, max_bytes, log_append_time=found.log_append_time)


def _converted_at_once(found: _Set, left: int) -> bytearray | CorruptBatch | None:
    """The batch, or why there is none; None where it may take long to find out."""
    if len(found.each.records) > left:
        return None
    steps = _converted(found, left)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        batch: bytearray = end.value
        return batch
    except TooMuchOutput:
        return None
    except CorruptBatch as error:
        return error


def entries_of(records: memoryview, max_message_bytes: int) -> list[Entry]:
    """The entries of a set that are whole, their checksums right. Raises CorruptBatch and its kin."""
    entries = []
    try:
        for entry in shallow(records):
            if LOG_OVERHEAD + entry.size > max_message_bytes:
                raise _TooLarge
            ensure_crc(records, entry)
            entries.append(entry)
    except TruncatedBatch:
        pass
    return entries


def _error_code(error: Exception) -> ErrorCode:
    if isinstance(error, (_TooLarge, TooMuchOutput)):
        return ErrorCode.MESSAGE_TOO_LARGE
    if isinstance(error, InvalidSet) or (isinstance(error, UnsupportedMagic) and error.magic == MAGIC):
        return ErrorCode.INVALID_RECORD
    return ErrorCode.CORRUPT_MESSAGE
