"""Produce, versions 0 to 2: message sets of format 0 or 1, stored as record batches (KIP-31, KIP-32).

Version 1 tells of throttling, version 2 of the time that the broker has set; each may carry either format. A set is
checked as Apache Kafka 3.9 does, made a batch, and appended as any other: the topic's own rules for keys, timestamps
and compression hold. A message that is cut at the end of the set is dropped, and an empty set is answered without an
error and without an offset. Without a producer id nothing is idempotent.

Sets that may be large are converted by a worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.units import KIB
from oncelog.handlers.produce.handler import append_and_answer
from oncelog.handlers.produce.partition_append import appends_of
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


def handle(request: ProduceRequest, context: Context) -> Steps[ProduceResponse | None]:
    """Convert every partition's messages, then go on as with today's versions."""
    response = ProduceResponse()
    appends = []
    left = AT_ONCE_BYTES
    for each in appends_of(request, response, context):
        appends.append(each)
        if magic_at(each.records) == MAGIC:
            continue  # a batch is taken as it is, as by Apache Kafka
        each.attributes = 0  # those of a batch are not there
        if not each.is_refused:
            each.resolve(context.partitions)
        if each.leader is None:
            continue
        config, most = each.leader.log.config, each.leader.log.storage.max_decompressed_bytes
        try:
            entries = entries_of(each.records, config.max_message_bytes)
            if not entries:
                appends.pop()  # its answer says neither an error nor an offset
                continue
            by_broker = config.log_append_time
            batch = _converted_at_once(each.records, entries, left, by_broker=by_broker)
            if batch is None:
                batch = yield Offload(up_converted(each.records, entries, most, log_append_time=by_broker))
            left -= min(left, len(batch))
            each.replace_records(batch)
        except (CorruptBatch, _TooLarge) as error:
            each.refuse(_error_code(error))
    return (yield from append_and_answer(request, response, appends, context))


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


def _converted_at_once(records: memoryview, entries: list[Entry], left: int, *, by_broker: bool) -> bytearray | None:
    """The batch; None where that may take long."""
    if len(records) > left:
        return None
    steps = up_converted(records, entries, left, log_append_time=by_broker)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        batch: bytearray = end.value
        return batch
    except TooMuchOutput:
        return None


def _error_code(error: Exception) -> ErrorCode:
    if isinstance(error, (_TooLarge, TooMuchOutput)):
        return ErrorCode.MESSAGE_TOO_LARGE
    if isinstance(error, InvalidSet) or (isinstance(error, UnsupportedMagic) and error.magic == MAGIC):
        return ErrorCode.INVALID_RECORD
    return ErrorCode.CORRUPT_MESSAGE
