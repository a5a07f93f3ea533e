"""Confluent's wire formats: a schema's id before the payload, or in a header of the record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.records.record import Headers

# Before the payload: `00` and a four-byte id. In the header `__key_schema_id` or `__value_schema_id`: the same, or
# `01` and a 16-byte GUID; the payload is bare then. For Protobuf the path of the message within its file follows the
# id, as zigzag varints: a count and that many indexes, or a zero for the first message.

AVRO: Final = "avro"
KEY: Final = "key"
VALUE: Final = "value"
_ID: Final = 0
_GUID: Final = 1
_ID_BYTES: Final = 5
_GUID_BYTES: Final = 17
_MAX_INDEXES: Final = 32
_MAX_VARINT_BYTES: Final = 5


class Framed(NamedTuple):
    """A payload and the schema its writer named. ``rest`` holds the bytes after an id in a header (Protobuf's message
    path); ``in_header``: the payload is the whole value."""

    payload: bytes
    schema_id: str | None = None
    rest: bytes = b""
    in_header: bool = False


def framed(value: bytes, part: str, headers: Headers) -> Framed:
    """Split a key or value by its header or first bytes; unchanged if neither names a schema."""
    for name, header in headers:
        if name == f"__{part}_schema_id" and header is not None and (header_id := _id_of(header)) is not None:
            return Framed(value, header_id[0], header[header_id[1] :], in_header=True)
    if value[:1] == b"\0" and (prefix := _id_of(value)) is not None:
        return Framed(value[prefix[1] :], prefix[0])
    return Framed(value)


def header_schema_id(header: bytes) -> tuple[str, bytes] | None:
    """The id or GUID in a header, and the bytes after it; None if it has none."""
    header_id = _id_of(header)
    return None if header_id is None else (header_id[0], header[header_id[1] :])


def _id_of(data: bytes) -> tuple[str, int] | None:
    if data[:1] == b"\0" and len(data) >= _ID_BYTES:
        return str(int.from_bytes(data[1:_ID_BYTES], "big")), _ID_BYTES
    if data[:1] == b"\1" and len(data) >= _GUID_BYTES:
        return str(UUID(bytes=data[1:_GUID_BYTES])), _GUID_BYTES
    return None


def message_path(data: bytes) -> tuple[tuple[int, ...], int] | None:
    """The indexes of a Protobuf message within its file, and the bytes they take; None for an invalid path."""
    count, at = _varint(data, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= _MAX_INDEXES:
        return None
    indexes = []
    for _ in range(count):
        index, at = _varint(data, at)
        if index < 0:
            return None
        indexes.append(index)
    return tuple(indexes), at


def encoded_path(path: Sequence[int]) -> bytes:
    """The bytes that name a Protobuf message; a zero stands for the first one."""
    if tuple(path) == (0,):
        return b"\0"
    return b"".join(map(_encoded_varint, (len(path), *path)))


def prefix_of(schema_id: int) -> bytes:
    """The bytes before a payload, for a schema's id."""
    return b"\0" + schema_id.to_bytes(_ID_BYTES - 1, "big")


def header_of(part: str, schema: int | UUID) -> tuple[str, bytes]:
    """The header of a record that names the schema of its key or value, by GUID or id."""
    data = b"\1" + schema.bytes if isinstance(schema, UUID) else prefix_of(schema)
    return f"__{part}_schema_id", data


def _encoded_varint(value: int) -> bytes:
    """A zigzag varint of a number that is not negative."""
    value *= 2
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint and the position after it; −1 if it is invalid."""
    value = 0
    for number, byte in enumerate(data[at : at + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + number + 1
    return -1, at
