"""Produce, versions 0 to 2: message sets of format 0 or 1, stored as record batches (KIP-31, KIP-32).

Version 1 tells of throttling, version 2 of the time that the broker has set; each may carry either format. A set is
checked as Apache Kafka 3.9 does, made a batch, and appended as any other: the topic's own rules for keys, timestamps
and compression hold. A message that is cut at the end of the set is dropped, and an empty set is answered without an
error and without an offset. Without a producer id nothing is idempotent.

Sets that may be large are converted by a worker.
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

AT_ONCE_BYTES: Final = 16 * KIB
"""Bytes of messages, uncompressed, that are converted at once."""


class _TooLarge(Exception):
    """A message is larger than the topic takes."""


class _Set(NamedTuple):
    """A message set that is to become a batch, and the limits of its topic."""

    each: PartitionAppend
    max_message_bytes: int
    max_decompressed_bytes: int
    log_append_time: bool


Outcome = bytearray | ErrorCode | None
"""The batch, or why there is none; None: there are no messages."""


def handle(request: ProduceRequest, context: Context) -> Steps[ProduceResponse | None]:
    """Convert every partition's messages, then go on as with today's versions."""
    response = ProduceResponse()
    appends, sets = appends_of(request, response, context), []
    for append in appends:
        found = _set_of(append, context)
        if found is not None:
            sets.append(found)
    outcomes = _converted_at_once(sets)
    if outcomes is None:
        outcomes = yield Offload(_converted_each(sets))
    for found, outcome in zip(sets, outcomes, strict=True):
        if outcome is None:
            appends.remove(found.each)  # its answer says neither an error nor an offset
        elif isinstance(outcome, ErrorCode):
            found.each.refuse(outcome)
        else:
            found.each.replace_records(outcome)
    return (yield from append_and_answer(request, response, appends, context))


def _set_of(each: PartitionAppend, context: Context) -> _Set | None:
    """The message set, None where there is none to convert: it is refused, or a batch, which is taken as it is, as by
    Apache Kafka."""
    if magic_at(each.records) == MAGIC:
        return None
    each.attributes = 0  # those of a batch are not there
    if not each.is_refused:
        each.resolve(context)
    if each.leader is None:
        return None
    log = each.leader.log
    config = log.config
    return _Set(each, config.max_message_bytes, log.storage.max_decompressed_bytes, config.log_append_time)


def _converted_at_once(sets: Sequence[_Set]) -> Sequence[Outcome] | None:
    """The outcomes; None where it may take long."""
    left = AT_ONCE_BYTES
    outcomes: list[Outcome] = []
    for set_ in sets:
        left -= len(set_.each.records)
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


def _converted_each(sets: Sequence[_Set]) -> Generator[None, None, Sequence[Outcome]]:
    """The outcomes, for the worker."""
    outcomes: list[Outcome] = []
    for set_ in sets:
        try:
            outcomes.append((yield from _converted(set_)))
        except TooMuchOutput:
            outcomes.append(ErrorCode.MESSAGE_TOO_LARGE)
        yield
    return outcomes


def _converted(found: _Set) -> Generator[None, None, Outcome]:
    """The outcome of one set, with pauses. Raises TooMuchOutput."""
    records = found.each.records
    entries = _entries(records, found.max_message_bytes)
    try:
        return (
            yield from up_converted(
                records, entries, found.max_decompressed_bytes, log_append_time=found.log_append_time
            )
        )
    except TooMuchOutput:
        raise
    except (CorruptBatch, _TooLarge) as error:
        return _error_code(error)


def _entries(records: memoryview, max_message_bytes: int) -> Iterator[Entry]:
    """The entries of a set that are whole. Raises CorruptBatch and its kin, and _TooLarge."""
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
