"""Reads and writes the fields of schemas in records: strings, bytes, arrays, tagged fields.

No count or length is believed beyond the bytes left. ``flexible`` chooses between Kafka's fixed-width and its compact
encoding (KIP-482).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from oncelog.records.errors import CorruptBatch

MAX_TAGGED_FIELDS: Final = 64
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


class Unknown(NamedTuple):
    """An unreadable key or value: its version (None if there is not even that) and the reason."""

    version: int | None
    reason: str


def record_version(data: bytes | None) -> int | None:
    """The version that a key or value begins with."""
    return None if data is None or len(data) < _INT16.size else int(_INT16.unpack_from(data)[0])


class Reader:
    """Reads fields in order; every method raises CorruptBatch if the bytes do not hold what they claim."""

    __slots__ = ("_data", "_position", "flexible")

    def __init__(self, data: bytes, *, flexible: bool = False) -> None:
        self._data = data
        self._position = 0
        self.flexible = flexible

    @property
    def left(self) -> int:
        return len(self._data) - self._position

    def int16(self) -> int:
        return int(_INT16.unpack(self.take(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self.take(4))[0])

    def int64(self) -> int:
        return int(_INT64.unpack(self.take(8))[0])

    def unsigned_varint(self) -> int:
        """An unsigned integer of at most 32 bits, in at most five bytes."""
        position = self._position
        if position < len(self._data) and self._data[position] < 0x80:
            self._position = position + 1
            return self._data[position]
        value = 0
        for shift in (0, 7, 14, 21, 28):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise CorruptBatch("variable-length integer of more than five bytes")

    def take(self, size: int) -> bytes:
        if size < 0 or size > self.left:
            raise CorruptBatch(f"a field claims {size} bytes, {self.left} are left")
        start = self._position
        self._position = start + size
        return self._data[start : start + size]

    def ahead(self, layouts: Sequence[struct.Struct], count_at: int) -> tuple[Any, ...] | None:
        # The fields in the layout that the byte at ``count_at`` selects. Not taken: the caller may read them otherwise.
        start, data = self._position, self._data
        if start + count_at >= len(data) or not 0 < data[start + count_at] <= len(layouts):
            return None
        layout = layouts[data[start + count_at] - 1]
        return layout.unpack_from(data, start) if start + layout.size <= len(data) else None

    def nullable_string(self) -> str | None:
        size = self.unsigned_varint() - 1 if self.flexible else self.int16()
        if size < 0:
            return None
        try:
            return self.take(size).decode()
        except UnicodeDecodeError:
            raise CorruptBatch("a string is not valid UTF-8") from None

    def string(self) -> str:
        """A string; null is refused."""
        value = self.nullable_string()
        if value is None:
            raise CorruptBatch("null where a string is required")
        return value

    def nullable_bytes(self) -> bytes | None:
        size = self.unsigned_varint() - 1 if self.flexible else self.int32()
        return None if size < 0 else self.take(size)

    def bytes_(self) -> bytes:
        """Bytes; null is refused."""
        value = self.nullable_bytes()
        if value is None:
            raise CorruptBatch("null where bytes are required")
        return value

    def count(self, minimum_element_bytes: int) -> int:
        count = self.unsigned_varint() - 1 if self.flexible else self.int32()
        if count < 0 or count * minimum_element_bytes > self.left:
            raise CorruptBatch(f"an array claims {count} elements, {self.left} bytes are left")
        return count

    def tagged_fields(self) -> dict[int, bytes]:
        """The tagged fields at the end of a structure, by tag; none unless the schema is flexible."""
        if not self.flexible:
            return {}
        count = self.unsigned_varint()
        if count > MAX_TAGGED_FIELDS:
            raise CorruptBatch(f"{count} tagged fields, at most {MAX_TAGGED_FIELDS} are allowed")
        fields: dict[int, bytes] = {}
        for _ in range(count):
            tag = self.unsigned_varint()
            fields[tag] = self.take(self.unsigned_varint())
        return fields


class Writer:
    __slots__ = ("flexible", "output")

    def __init__(self, *, flexible: bool = False) -> None:
        self.output = bytearray()
        self.flexible = flexible

    def int16(self, value: int) -> None:
        self.output += _INT16.pack(value)

    def int32(self, value: int) -> None:
        self.output += _INT32.pack(value)

    def int64(self, value: int) -> None:
        self.output += _INT64.pack(value)

    def unsigned_varint(self, value: int) -> None:
        while value > 0x7F:
            self.output.append(value & 0x7F | 0x80)
            value >>= 7
        self.output.append(value)

    def string(self, value: str | None) -> None:
        """Raises ValueError for a string that is too long for the schema."""
        encoded = None if value is None else value.encode()
        size = -1 if encoded is None else len(encoded)
        if self.flexible:
            self.unsigned_varint(size + 1)
        elif size > 0x7FFF:
            raise ValueError(f"a string of {size} bytes exceeds 32767")
        else:
            self.int16(size)
        self.output += encoded or b""

    def bytes_(self, value: bytes | None) -> None:
        size = -1 if value is None else len(value)
        if self.flexible:
            self.unsigned_varint(size + 1)
        else:
            self.int32(size)
        self.output += value or b""

    def count(self, value: int) -> None:
        if self.flexible:
            self.unsigned_varint(value + 1)
        else:
            self.int32(value)

    def tagged_fields(self, fields: dict[int, bytes] | None = None) -> None:
        """Tagged fields in rising order of tag; none unless the schema is flexible."""
        if not self.flexible:
            return
        fields = fields or {}
        self.unsigned_varint(len(fields))
        for tag in sorted(fields):
            self.unsigned_varint(tag)
            self.unsigned_varint(len(fields[tag]))
            self.output += fields[tag]
