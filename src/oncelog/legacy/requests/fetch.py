"""Fetch, versions 0 to 3: records as message sets, of format 0 below version 2, of format 1 from there on.

Found as for today's versions, read and converted by a worker, a batch at a time (``message_set.conversion``).
An answer's records are in memory until they are sent, unlike today's, which are ranges of files: there are at most
``MOST_BYTES`` of them, shared evenly, and the client asks on from where they end.

These clients know nothing of transactions: control batches are left out, records of aborted transactions are not. An
answer that would have nothing else is waited for instead, or the client would ask again at once for ever. Nor do they
know zstd: its batches are error 76 (KIP-110). Below version 3 a first message that is larger than the client allows
comes cut, which tells the client so; from 3 on it comes whole (KIP-74).

Replicas are not served: a follower's log has to be its leader's, byte for byte.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.units import KIB, MIB
from oncelog.handlers.broker.waits import Offload, Steps
from oncelog.handlers.fetch.handler import handle as fetch
from oncelog.legacy.message_set import LOG_OVERHEAD, MAGIC_V0, MAGIC_V1, MIN_SIZES, down_converted
from oncelog.records.batch import HEADER_SIZE, BatchHeader, CorruptBatch, crc_matches, read_header
from oncelog.records.compression import Codec
from oncelog.storage.file_range import FileRange
from oncelog.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

if TYPE_CHECKING:
    from oncelog.handlers.broker.context import Context
    from oncelog.wire.messages.fetch import FetchPartition

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "records compressed with zstd",
    ErrorCode.UNSUPPORTED_VERSION: "another broker asks",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the log could not be read",
    ErrorCode.CORRUPT_MESSAGE: "a batch in the log is damaged, or decompresses to too much",
}

MOST_BYTES: Final = 4 * MIB
"""Bytes of messages in an answer; a single message may be larger."""
LEAST_BYTES: Final = 32 * KIB
"""A partition's share of them, however many there are."""
LEAST_LEFT_BYTES: Final = KIB
"""The room in the answer below which no other partition is read."""
LEAST_ENTRY_BYTES: Final = LOG_OVERHEAD + MIN_SIZES[MAGIC_V0]
_TIMESTAMPS_SINCE: Final = 2
_WHOLE_FIRST_SINCE: Final = 3


def handle(request: FetchRequest, context: Context) -> Steps[FetchResponse]:
    """Fetch, convert; where that leaves nothing, go on behind what was left out."""
    if request.replica_id >= 0:
        return _refused(request)
    deadline_ms = context.now_ms + request.max_wait_ms
    while True:
        response = yield from fetch(request, context)
        found = _found(request, response)
        if not found:
            return response
        results: list[Result] = yield Offload(_convert(found, _limits(request, context)), ends_with_client=True)
        has_news = _take_over(found, results) or _has_errors(response)
        request.max_wait_ms = max(0, deadline_ms - context.now_ms)
        if has_news or not request.max_wait_ms:
            return response
        if not _go_on(found, results):
            return response


def _go_on(found: _Found, results: Sequence[Result]) -> bool:
    """Ask for what is behind that of which nothing was left; False if that is the same."""
    has_moved = False
    for (asked, _answer), result in zip(found, results, strict=True):
        has_moved |= result.next_offset > asked.fetch_offset
        asked.fetch_offset = max(asked.fetch_offset, result.next_offset)
    return has_moved


class Result(NamedTuple):
    """A partition's messages, and where what was looked at ends."""

    messages: bytes
    next_offset: int
    error_code: ErrorCode = ErrorCode.NONE


_Found = list[tuple["FetchPartition", PartitionData]]
"""The partitions that have records, as asked and as answered."""


def _refused(request: FetchRequest) -> FetchResponse:
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    PartitionData(
                        partition_index=partition.partition,
                        error_code=ErrorCode.UNSUPPORTED_VERSION,
                        high_watermark=-1,
                        records=b"",
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _found(request: FetchRequest, response: FetchResponse) -> _Found:
    answers = {
        (topic.topic, partition.partition_index): partition
        for topic in response.responses
        for partition in topic.partitions
        if partition.records
    }
    found = []
    for topic in request.topics:
        for asked in topic.partitions:
            answer = answers.pop((topic.topic, asked.partition), None)
            if answer is not None:
                found.append((asked, answer))
    return found


def _take_over(found: _Found, results: Sequence[Result]) -> bool:
    """Put the messages in the answers; True if there are any, or an error."""
    has_news = False
    for (_asked, answer), result in zip(found, results, strict=True):
        answer.records = result.messages
        if result.error_code is not ErrorCode.NONE:
            answer.error_code, answer.high_watermark = result.error_code, -1
        has_news |= bool(result.messages) or result.error_code is not ErrorCode.NONE
    return has_news


def _has_errors(response: FetchResponse) -> bool:
    return any(partition.error_code for topic in response.responses for partition in topic.partitions)


class _Limits(NamedTuple):
    """The format of an answer, and its bounds."""

    magic: int
    max_bytes: int
    max_decompressed_bytes: int
    whole_first: bool
    """A first message that is larger than its client allows is given whole."""
    turn: int
    """The turn, counted on and on, that decides which partition is the first."""


def _limits(request: FetchRequest, context: Context) -> _Limits:
    return _Limits(
        MAGIC_V1 if context.version >= _TIMESTAMPS_SINCE else MAGIC_V0,
        min(MOST_BYTES, request.max_bytes),
        int(context.cluster.config.get("oncelog.decompressed.max.bytes")),
        context.version >= _WHOLE_FIRST_SINCE,
        context.now_ms,
    )


def _convert(found: _Found, limits: _Limits) -> Generator[None, None, list[Result]]:
    """Convert all partitions, one after the other, on a worker. Another is the first each time, for what does not fit
    behind others: these clients ask for their partitions in the same order for ever."""
    left = limits.max_bytes
    share = max(LEAST_BYTES, left // len(found))
    results = [Result(b"", asked.fetch_offset) for asked, _answer in found]
    is_first, begin = True, limits.turn % len(found)
    for index in (*range(begin, len(found)), *range(begin)):
        asked, answer = found[index]
        room = min(asked.partition_max_bytes, share, left)
        if left < LEAST_LEFT_BYTES and not is_first:
            continue
        conversion = _Conversion(asked.fetch_offset, limits.magic, limits.max_decompressed_bytes)
        result = yield from conversion.run(_ranges(answer), room)
        if len(result.messages) > room:
            if not is_first:
                continue
            if len(result.messages) > asked.partition_max_bytes and not limits.whole_first:
                result = result._replace(messages=result.messages[: asked.partition_max_bytes])
        results[index] = result
        left = max(0, left - len(result.messages))
        is_first &= not result.messages
    return results


def _ranges(answer: PartitionData) -> Sequence[FileRange]:
    assert isinstance(answer.records, list)
    return [chunk for chunk in answer.records if isinstance(chunk, FileRange)]


class _Conversion:
    """One partition's records on their way to be messages."""

    def __init__(self, first_offset: int, magic: int, max_decompressed_bytes: int) -> None:
        self._first_offset = first_offset
        self._magic = magic
        self._max_decompressed_bytes = max_decompressed_bytes

    def run(self, ranges: Sequence[FileRange], room: int) -> Generator[None, None, Result]:
        """Messages up to ``room`` bytes; the first whatever its size."""
        output = bytearray()
        position = self._first_offset
        try:
            for header, batch in _batches(ranges):
                yield
                if header.is_control or header.next_offset <= self._first_offset:
                    position = max(position, header.next_offset)
                    continue
                if header.codec is Codec.ZSTD:
                    unsupported = ErrorCode.NONE if output else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
                    return Result(bytes(output), position, unsupported)
                if output and len(output) + LEAST_ENTRY_BYTES > room:
                    break
                complete = yield from self._append(output, header, batch, room)
                if not complete:
                    break
                position = header.next_offset
        except CorruptBatch:
            if not output:
                return Result(b"", position, ErrorCode.CORRUPT_MESSAGE)
        except OSError:
            if not output:
                return Result(b"", position, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return Result(bytes(output), position)

    def _append(self, output: bytearray, header: BatchHeader, batch: bytes, room: int) -> Generator[None, None, bool]:
        if not crc_matches(batch, 0, header):
            raise CorruptBatch(f"wrong checksum of the batch at offset {header.base_offset}")
        converted = yield from down_converted(
            batch,
            0,
            header,
            magic=self._magic,
            first_offset=self._first_offset,
            room=room - len(output),
            max_bytes=self._max_decompressed_bytes,
        )
        if output and len(output) + len(converted.data) > room:
            return False
        output += converted.data
        return converted.complete


def _batches(ranges: Sequence[FileRange]) -> Iterator[tuple[BatchHeader, bytes]]:
    """The whole batches in ranges of files, read one at a time."""
    for piece in ranges:
        position, end = piece.position, piece.position + piece.size_bytes
        while end - position >= HEADER_SIZE:
            header = read_header(piece.file.read(position, HEADER_SIZE))
            if header.size_bytes > end - position:
                break
            yield header, piece.file.read(position, header.size_bytes)
            position += header.size_bytes
