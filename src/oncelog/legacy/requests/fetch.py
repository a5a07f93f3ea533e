"""Fetch, versions 0 to 3: records as message sets, of format 0 below version 2 and of format 1 from version 2 on.

Records are located as in current versions, then a worker reads and converts a batch at a time
(``message_set.conversion``). They are in memory until they are sent: at most ``MAX_RESPONSE_BYTES``, divided evenly;
the client continues where they end.

These clients do not know transactions: control batches are omitted, aborted records are not. Nor do they know zstd:
error 76 (KIP-110). Below version 3, a first message larger than the client's limit is cut, which tells the client to
raise it; from version 3 on it is sent whole (KIP-74). Replicas are not served: a follower's log must equal its
leader's, byte for byte.
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

MAX_RESPONSE_BYTES: Final = 4 * MIB  # Bytes of messages in a response; a single message may be larger.
MIN_SHARE_BYTES: Final = 32 * KIB  # A partition's minimum share, however many partitions there are.
MIN_ROOM_BYTES: Final = KIB  # With less room in the response no further partition is read.
MIN_ENTRY_BYTES: Final = LOG_OVERHEAD + MIN_SIZES[MAGIC_V0]
_TIMESTAMPS_SINCE: Final = 2
_WHOLE_FIRST_SINCE: Final = 3


def handle(request: FetchRequest, context: Context) -> Steps[FetchResponse]:
    """Fetch and convert; if nothing remains, continue after the omitted batches."""
    if request.replica_id >= 0:
        return _refused(request)
    deadline_ms = context.now_ms + request.max_wait_ms
    while True:
        response = yield from fetch(request, context)
        pairs = _pair_partitions(request, response)
        if not pairs:
            return response
        results: list[Result] = yield Offload(_convert(pairs, _limits(request, context)), ends_with_client=True)
        has_news = _replace_records(pairs, results) or _has_errors(response)
        request.max_wait_ms = max(0, deadline_ms - context.now_ms)
        # Without a message to return it waits for more: the client would repeat the request endlessly.
        if has_news or not request.max_wait_ms:
            return response
        if not _advance_offsets(pairs, results):
            return response


def _advance_offsets(pairs: _Pairs, results: Sequence[Result]) -> bool:
    """Move the request past batches that left no message; False if no offset moved."""
    has_moved = False
    for (requested, _answer), result in zip(pairs, results, strict=True):
        has_moved |= result.next_offset > requested.fetch_offset
        requested.fetch_offset = max(requested.fetch_offset, result.next_offset)
    return has_moved


class Result(NamedTuple):
    """A partition's converted messages, and the offset after the last batch examined."""

    messages: bytes
    next_offset: int
    error_code: ErrorCode = ErrorCode.NONE


_Pairs = list[tuple["FetchPartition", PartitionData]]
"""The requested partitions that have records, each with its response."""


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


def _pair_partitions(request: FetchRequest, response: FetchResponse) -> _Pairs:
    answers = {
        (topic.topic, partition.partition_index): partition
        for topic in response.responses
        for partition in topic.partitions
        if partition.records
    }
    pairs = []
    for topic in request.topics:
        for requested in topic.partitions:
            answer = answers.pop((topic.topic, requested.partition), None)
            if answer is not None:
                pairs.append((requested, answer))
    return pairs


def _replace_records(pairs: _Pairs, results: Sequence[Result]) -> bool:
    """Put the messages into the responses; True if there are any, or an error."""
    has_news = False
    for (_asked, answer), result in zip(pairs, results, strict=True):
        answer.records = result.messages
        if result.error_code is not ErrorCode.NONE:
            answer.error_code, answer.high_watermark = result.error_code, -1
        has_news |= bool(result.messages) or result.error_code is not ErrorCode.NONE
    return has_news


def _has_errors(response: FetchResponse) -> bool:
    return any(partition.error_code for topic in response.responses for partition in topic.partitions)


class _Limits(NamedTuple):
    magic: int
    max_bytes: int
    max_decompressed_bytes: int
    whole_first: bool
    """A first message larger than the client's limit is sent whole."""
    turn: int
    """An increasing number that selects the partition to begin with."""


def _limits(request: FetchRequest, context: Context) -> _Limits:
    return _Limits(
        MAGIC_V1 if context.version >= _TIMESTAMPS_SINCE else MAGIC_V0,
        min(MAX_RESPONSE_BYTES, request.max_bytes),
        int(context.cluster.config.get("oncelog.decompressed.max.bytes")),
        context.version >= _WHOLE_FIRST_SINCE,
        context.now_ms,
    )


def _convert(pairs: _Pairs, limits: _Limits) -> Generator[None, None, list[Result]]:
    """Convert all partitions in turn, on a worker. Each response begins with another one, so that every partition gets
    room: these clients always send them in the same order.
    """
    remaining = limits.max_bytes
    share = max(MIN_SHARE_BYTES, remaining // len(pairs))
    results = [Result(b"", requested.fetch_offset) for requested, _answer in pairs]
    # Rotate the first partition: these clients always send the same order.
    is_first, begin = True, limits.turn % len(pairs)
    for index in (*range(begin, len(pairs)), *range(begin)):
        requested, answer = pairs[index]
        room = min(requested.partition_max_bytes, share, remaining)
        if remaining < MIN_ROOM_BYTES and not is_first:
            continue
        conversion = _Conversion(requested.fetch_offset, limits.magic, limits.max_decompressed_bytes)
        result = yield from conversion.run(_ranges(answer), room)
        if len(result.messages) > room:
            if not is_first:
                continue
            if len(result.messages) > requested.partition_max_bytes and not limits.whole_first:
                result = result._replace(messages=result.messages[: requested.partition_max_bytes])
        results[index] = result
        remaining = max(0, remaining - len(result.messages))
        is_first &= not result.messages
    return results


def _ranges(answer: PartitionData) -> Sequence[FileRange]:
    assert isinstance(answer.records, list)
    return [chunk for chunk in answer.records if isinstance(chunk, FileRange)]


class _Conversion:
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
                if output and len(output) + MIN_ENTRY_BYTES > room:
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
    """The complete batches in ranges of files, read one at a time."""
    for piece in ranges:
        position, end = piece.position, piece.position + piece.size_bytes
        while end - position >= HEADER_SIZE:
            header = read_header(piece.file.read(position, HEADER_SIZE))
            if header.size_bytes > end - position:
                break
            yield header, piece.file.read(position, header.size_bytes)
            position += header.size_bytes
