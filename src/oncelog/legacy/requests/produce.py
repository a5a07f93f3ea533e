"""Produce, versions 0 to 2: message sets of format 0 or 1, stored as record batches (KIP-31, KIP-32).

Version 1 adds the throttle time, version 2 the broker's timestamp; each accepts either format. A set is validated as in
Apache Kafka 3.9, converted to a batch, large ones by a worker, and appended by the topic's rules for keys, timestamps
and compression. An incomplete message at the end is dropped. An empty set is answered without error and without offset.
There is no producer id, so nothing is idempotent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.units import KIB
from oncelog.handlers.broker.waits import Offload, Steps
from oncelog.handlers.produce.handler import append_and_answer
from oncelog.handlers.produce.partition_append import PartitionAppend, appends_of
from oncelog.legacy.message_set import LOG_OVERHEAD, Entry, shallow, up_converted
from oncelog.records.batch import MAGIC, magic_at
from oncelog.records.errors import CorruptBatch, InvalidSet, TooMuchOutput, TruncatedBatch, UnsupportedMagic
from oncelog.wire.messages.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from oncelog.handlers.broker.context import Context

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.CORRUPT_MESSAGE: "a checksum or the structure of a message is wrong",
    ErrorCode.MESSAGE_TOO_LARGE: "a message, or the batch that a set becomes, is larger than max.message.bytes",
    ErrorCode.INVALID_RECORD: "messages of both formats, one of them compressed among others, or compressed twice",
}

INLINE_CONVERSION_BYTES: Final = 16 * KIB  # Sets up to this size, uncompressed, are converted without a worker.


class _TooLarge(Exception):
    """A message exceeds the topic's limit."""


class _Set(NamedTuple):
    partition_append: PartitionAppend
    max_message_bytes: int
    max_decompressed_bytes: int
    log_append_time: bool


_Converted = bytearray | ErrorCode | None
"""The batch, or an error; None without messages."""


def handle(request: ProduceRequest, context: Context) -> Steps[ProduceResponse | None]:
    response = ProduceResponse()
    appends, sets = appends_of(request, response, context), []
    for append in appends:
        message_set = _set_of(append, context)
        if message_set is not None:
            sets.append(message_set)
    outcomes = _converted_at_once(sets)
    if outcomes is None:
        outcomes = yield Offload(_converted_each(sets))
    for message_set, outcome in zip(sets, outcomes, strict=True):
        if outcome is None:
            appends.remove(message_set.partition_append)  # The response has neither an error nor an offset.
        elif isinstance(outcome, ErrorCode):
            message_set.partition_append.refuse(outcome)
        else:
            message_set.partition_append.replace_records(outcome)
    return (yield from append_and_answer(request, response, appends, context))


def _set_of(partition_append: PartitionAppend, context: Context) -> _Set | None:
    """The message set to convert; None if the append was rejected or has a batch, which is accepted as in Apache
    Kafka."""
    if magic_at(partition_append.records) == MAGIC:
        return None
    partition_append.attributes = 0  # A message set has no batch attributes.
    if not partition_append.is_refused:
        partition_append.resolve(context)
    if partition_append.leader is None:
        return None
    log = partition_append.leader.log
    config = log.config
    return _Set(partition_append, config.max_message_bytes, log.storage.max_decompressed_bytes, config.log_append_time)


def _converted_at_once(sets: Sequence[_Set]) -> Sequence[_Converted] | None:
    """The outcomes; None if converting may take long."""
    left = INLINE_CONVERSION_BYTES
    outcomes: list[_Converted] = []
    for set_ in sets:
        left -= len(set_.partition_append.records)
        if left < 0:
            return None
        steps = _converted(set_._replace(max_decompressed_bytes=left))
        try:
            while True:
                next(steps)
        except StopIteration as end:
            outcomes.append(end.value)
        except TooMuchOutput:
            return None
    return outcomes


def _converted_each(sets: Sequence[_Set]) -> Generator[None, None, Sequence[_Converted]]:
    outcomes: list[_Converted] = []
    for set_ in sets:
        try:
            outcomes.append((yield from _converted(set_)))
        except TooMuchOutput:
            outcomes.append(ErrorCode.MESSAGE_TOO_LARGE)
        yield
    return outcomes


def _converted(message_set: _Set) -> Generator[None, None, _Converted]:
    """The outcome of one set, yielding between steps. Raises TooMuchOutput."""
    records = message_set.partition_append.records
    entries = _entries(records, message_set.max_message_bytes)
    try:
        return (
            yield from up_converted(
                records, entries, message_set.max_decompressed_bytes, log_append_time=message_set.log_append_time
            )
        )
    except TooMuchOutput:
        raise
    except (CorruptBatch, _TooLarge) as error:
        return _error_code(error)


def _entries(records: memoryview, max_message_bytes: int) -> Iterator[Entry]:
    """The complete entries of a set. Raises CorruptBatch and its subclasses, and _TooLarge."""
    with contextlib.suppress(TruncatedBatch):
        for entry in shallow(records):
            if LOG_OVERHEAD + entry.size > max_message_bytes:
                raise _TooLarge
            yield entry


def _error_code(error: Exception) -> ErrorCode:
    if isinstance(error, _TooLarge):
        return ErrorCode.MESSAGE_TOO_LARGE
    if isinstance(error, InvalidSet) or (isinstance(error, UnsupportedMagic) and error.magic == MAGIC):
        return ErrorCode.INVALID_RECORD
    return ErrorCode.CORRUPT_MESSAGE
