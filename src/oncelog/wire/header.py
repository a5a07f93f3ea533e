"""Request and response headers, and whole messages with their size in front.

Flexible versions of an API have tagged fields in the header (request header 2, response header 1, KIP-482), others have
none (1 and 0). Two exceptions: the client id keeps its 16-bit length in every version, and an ApiVersions response
always has header 0, because the client does not know yet whether the broker understood the version (KIP-511).
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from oncelog.base.errors import PeerError
from oncelog.wire.apis import BY_KEY
from oncelog.wire.chunks import Buffer, Chunk
from oncelog.wire.message import Message
from oncelog.wire.reader import Reader
from oncelog.wire.writer import Writer

API_VERSIONS_KEY: Final = 18

_SIZE = Struct(">i")
_REQUEST_START = Struct(">hhi")
_REQUEST_START_AND_LENGTH = Struct(">hhih")
_CLIENT_ID_POSITION: Final = _REQUEST_START_AND_LENGTH.size
_SHORT_BYTES: Final = 255
"""Longest client id decoded without a check of its length after replacing invalid UTF-8."""
_SIZE_AND_CORRELATION_ID = Struct(">ii")
_SIZE_AND_REQUEST_START = Struct(">ihhi")


class RequestHeader(NamedTuple):
    """The header of a request, without tagged fields."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(buffer: Buffer) -> tuple[RequestHeader, int]:
    """The header, and the position of the body in ``buffer`` (a frame without its size). Raises PeerError, also for an
    unknown API key."""
    # The version is checked later: an unknown one of ApiVersions is answered.
    usual = _usual_header(buffer)
    if usual is not None:
        return usual
    reader = Reader(buffer, 0)
    api_key, api_version, correlation_id = reader.unpack(_REQUEST_START)
    api = BY_KEY.get(api_key)
    if api is None:
        raise PeerError(f"unknown API key {api_key} (version {api_version})")
    client_id = reader.nullable_string()
    if api_version >= api.first_flexible_version:
        reader.skip_tags()
    return RequestHeader(api_key, api_version, correlation_id, client_id), reader.position


def _usual_header(buffer: Buffer) -> tuple[RequestHeader, int] | None:
    """The header if it has a short client id and no tagged fields, as nearly all have; else None."""
    if len(buffer) <= _CLIENT_ID_POSITION:
        return None
    api_key, api_version, correlation_id, length = _REQUEST_START_AND_LENGTH.unpack_from(buffer)
    after = _CLIENT_ID_POSITION + length
    if not 0 <= length <= _SHORT_BYTES or after >= len(buffer) or (api := BY_KEY.get(api_key)) is None:
        return None
    client_id = str(memoryview(buffer)[_CLIENT_ID_POSITION:after], "utf-8", "replace")
    if api_version >= api.first_flexible_version:
        # Tagged fields: the general path skips them.
        if buffer[after]:
            return None
        after += 1
    return RequestHeader(api_key, api_version, correlation_id, client_id), after


def decode_response_header(buffer: Buffer, api_key: int, api_version: int) -> tuple[int, int]:
    """Correlation id and position of the body in a frame without its size. Raises PeerError."""
    reader = Reader(buffer, 0)
    correlation_id = reader.int32()
    if api_key != API_VERSIONS_KEY and api_version >= BY_KEY[api_key].first_flexible_version:
        reader.skip_tags()
    return correlation_id, reader.position


def encode_response(correlation_id: int, api_key: int, api_version: int, message: Message) -> list[Chunk]:
    """Raises ValueError or struct.error for an invalid message."""
    buffer = bytearray(_SIZE_AND_CORRELATION_ID.pack(0, correlation_id))
    if api_key != API_VERSIONS_KEY and api_version >= message.FIRST_FLEXIBLE_VERSION:
        buffer.append(0)
    return _with_body(buffer, message, api_version)


def encode_request(header: RequestHeader, message: Message) -> list[Chunk]:
    """Raises ValueError or struct.error for an invalid message."""
    buffer = bytearray(_SIZE_AND_REQUEST_START.pack(0, header.api_key, header.api_version, header.correlation_id))
    Writer(buffer).nullable_string(header.client_id)
    if header.api_version >= message.FIRST_FLEXIBLE_VERSION:
        buffer.append(0)
    return _with_body(buffer, message, header.api_version)


def _with_body(buffer: bytearray, message: Message, version: int) -> list[Chunk]:
    writer = message.writer(version, buffer)
    message.write(writer, version)
    _SIZE.pack_into(buffer, 0, writer.size_bytes - _SIZE.size)
    return writer.chunks()
