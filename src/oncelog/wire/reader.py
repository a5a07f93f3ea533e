"""Reads the protocol's primitive types from one frame, with bounds before every allocation.

A read of any bytes yields a value or raises :class:`PeerError`, and allocates by the bytes present, never by an
announced number. A message has at most ``max_elements`` tagged fields and array elements in all, because a Python
object costs fifty times the two bytes that can announce it; this covers Produce as well, in memory and in time.
Generated code chooses :class:`Reader` or :class:`CompactReader` once for a message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from oncelog.base.errors import PeerError
from oncelog.wire.chunks import Buffer

MAX_STRING_BYTES: Final = 2**15 - 1
MAX_UNKNOWN_TAGS: Final = 64

_INT8 = Struct(">b")
_INT16 = Struct(">h")
_UINT16 = Struct(">H")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_FLOAT64 = Struct(">d")


@lru_cache(maxsize=256)
def repeated(code: str, count: int) -> Struct:
    """The layout of ``count`` integers of struct's format ``code``."""
    return Struct(f">{count}{code}")


class Reader:
    """The original encodings (16-bit string lengths, 32-bit counts)."""

    __slots__ = ("elements_left", "end", "position", "view")

    def __init__(self, buffer: Buffer, max_elements: int) -> None:
        self.view: memoryview = memoryview(buffer)
        self.end: int = len(self.view)
        self.position: int = 0
        self.elements_left: int = max_elements

    def finish(self) -> None:
        """Raises PeerError if bytes are left."""
        if self.position != self.end:
            raise PeerError(f"{self.end - self.position} bytes left after the message")

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        """A run of fixed-size fields."""
        position = self.position
        try:
            values = layout.unpack_from(self.view, position)
        except struct.error:
            raise PeerError("the message ends within a field") from None
        self.position = position + layout.size
        return values

    def int8(self) -> int:
        position = self.position
        try:
            value: int = _INT8.unpack_from(self.view, position)[0]
        except struct.error:
            raise PeerError("the message ends within a field") from None
        self.position = position + 1
        return value

    def int16(self) -> int:
        position = self.position
        try:
            value: int = _INT16.unpack_from(self.view, position)[0]
        except struct.error:
            raise PeerError("the message ends within a field") from None
        self.position = position + 2
        return value

    def uint16(self) -> int:
        value: int = self.unpack(_UINT16)[0]
        return value

    def int32(self) -> int:
        position = self.position
        try:
            value: int = _INT32.unpack_from(self.view, position)[0]
        except struct.error:
            raise PeerError("the message ends within a field") from None
        self.position = position + 4
        return value

    def int64(self) -> int:
        position = self.position
        try:
            value: int = _INT64.unpack_from(self.view, position)[0]
        except struct.error:
            raise PeerError("the message ends within a field") from None
        self.position = position + 8
        return value

    def float64(self) -> float:
        value: float = self.unpack(_FLOAT64)[0]
        return value

    def boolean(self) -> bool:
        """A byte; any but 0 is true, as in Apache Kafka."""
        return self.int8() != 0

    def uuid(self) -> bytes:
        return bytes(self._take(16))

    def unsigned_varint(self) -> int:
        """7 bits a byte, least significant first, at most 5 bytes."""
        view, position = self.view, self.position
        value = shift = 0
        try:
            while True:
                byte = view[position]
                position += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift > 28:
                    raise PeerError("a varint is longer than 5 bytes")
        except IndexError:
            raise PeerError("the message ends within a varint") from None
        self.position = position
        return value

    def _take(self, size: int) -> memoryview:
        position = self.position
        after = position + size
        if after > self.end:
            raise PeerError(f"a field claims {size} bytes, {self.end - position} are left")
        self.position = after
        return self.view[position:after]

    # Lengths and counts: -1 is null. The only things that differ between the two encodings.

    def _string_length(self) -> int:
        return self.int16()

    def _length(self) -> int:
        return self.int32()

    def nullable_string(self) -> str | None:
        """UTF-8, at most 32,767 bytes; invalid bytes become U+FFFD, as in Java."""
        length = self._string_length()
        if length == -1:
            return None
        position = self.position
        after = position + length
        if length < 0 or length > MAX_STRING_BYTES or after > self.end:
            raise PeerError(f"a string of {length} bytes exceeds the limit or the {self.end - position} bytes left")
        self.position = after
        # C clients pass on the bytes that they are given.
        value = str(self.view[position:after], "utf-8", "replace")
        if length > MAX_STRING_BYTES // 3 and len(value.encode()) > MAX_STRING_BYTES:
            # A replaced byte takes three: a response that repeats the string could not be encoded.
            raise PeerError("a long string is not UTF-8: replacing its invalid bytes exceeds the limit")
        return value

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise PeerError("null in place of a string")
        return value

    def nullable_records(self) -> memoryview | None:
        """A view into the frame, writable if the frame is."""
        length = self._length()
        if length < 0:
            if length == -1:
                return None
            raise PeerError(f"bytes with the negative length {length}")
        return self._take(length)

    def records(self) -> memoryview:
        """Record batches as a view into the frame; null is refused."""
        value = self.nullable_records()
        if value is None:
            raise PeerError("null in place of records")
        return value

    def byte_string(self) -> bytes:
        """Bytes, copied; null is refused."""
        value = self.nullable_records()
        if value is None:
            raise PeerError("null in place of bytes")
        return bytes(value)

    def _count(self, element_size: int) -> int:
        """A count checked against the bytes left; -1 is null."""
        count = self._length()
        if count < -1 or count * element_size > self.end - self.position:
            raise PeerError(f"an array claims {count} elements, {self.end - self.position} bytes are left")
        return count

    def nullable_array_count(self, element_size: int) -> int | None:
        """The count of an array whose elements have at least ``element_size`` bytes, or None for null."""
        count = self._count(element_size)
        if count < 0:
            return None
        self.elements_left -= count
        if self.elements_left < 0:
            raise PeerError("the message has more elements in its arrays than allowed")
        return count

    def array_count(self, element_size: int) -> int:
        """Like :meth:`nullable_array_count`; null is refused."""
        count = self.nullable_array_count(element_size)
        if count is None:
            raise PeerError("null in place of an array")
        return count

    def string_array(self) -> list[str]:
        return [self.string() for _ in range(self.array_count(1))]

    def nullable_string_array(self) -> list[str] | None:
        """Strings, none of them null; or None for a null array."""
        count = self.nullable_array_count(1)
        return None if count is None else [self.string() for _ in range(count)]

    def nullable_integer_array(self, code: str, size: int) -> list[int] | None:
        """Integers of struct's format ``code``, of ``size`` bytes each, or None."""
        count = self.nullable_array_count(size)
        return None if count is None else list(self.unpack(repeated(code, count)))

    def integer_array(self, code: str, size: int) -> list[int]:
        """Like :meth:`nullable_integer_array`; null is refused."""
        values = self.nullable_integer_array(code, size)
        if values is None:
            raise PeerError("null in place of an array")
        return values

    # Structs that may be null (KIP-893) and tagged fields (KIP-482).

    def present(self) -> bool:
        """True if a nullable struct follows."""
        return self.int8() >= 0

    def tags(self) -> Iterator[int]:
        """Each tag in turn; a field that the caller does not read is skipped."""
        unknown = 0
        for _ in range(self.unsigned_varint()):
            tag = self.unsigned_varint()
            size = self.unsigned_varint()
            start = self.position
            after = start + size
            self.elements_left -= 1
            if after > self.end or self.elements_left < 0:
                raise PeerError(f"a tagged field claims {size} bytes, {self.end - start} are left")
            yield tag
            if self.position == after:
                continue
            if self.position != start:
                raise PeerError(f"tagged field {tag} has {size} bytes and needs {self.position - start}")
            unknown += 1
            if unknown > MAX_UNKNOWN_TAGS:
                raise PeerError(f"more than {MAX_UNKNOWN_TAGS} unknown tagged fields in a struct")
            self.position = after

    def skip_tags(self) -> None:
        """Skip the tagged fields of a struct without known ones."""
        try:
            if self.view[self.position] == 0:
                self.position += 1
                return
        except IndexError:
            raise PeerError("the message ends before its tagged fields") from None
        for _ in self.tags():
            pass


class CompactReader(Reader):
    """The encodings of flexible versions (KIP-482): lengths and counts are varints plus one, 0 is null."""

    __slots__ = ()

    def _length(self) -> int:
        try:
            byte = self.view[self.position]
        except IndexError:
            raise PeerError("the message ends before a length") from None
        if byte < 0x80:
            self.position += 1
            return byte - 1
        return self.unsigned_varint() - 1

    _string_length = _length

    def array_count(self, element_size: int) -> int:
        """A count, with a fast path for less than 127 elements: metadata has three arrays per partition."""
        position = self.position
        if position < self.end:
            count_and_one = self.view[position]
            left = self.elements_left - count_and_one + 1
            after = position + 1
            if 0 < count_and_one < 0x80 and left >= 0 and (count_and_one - 1) * element_size <= self.end - after:
                self.position, self.elements_left = after, left
                return count_and_one - 1
        return super().array_count(element_size)

    def integer_array(self, code: str, size: int) -> list[int]:
        """Integers, counted by the fast path."""
        count = self.array_count(size)
        start = self.position
        self.position = start + count * size
        return list(repeated(code, count).unpack_from(self.view, start))

    def nullable_string(self) -> str | None:
        """A string or null, with a fast path for less than 127 bytes: requests may have 30,000 strings."""
        position = self.position
        if position < self.end:
            length_and_one = self.view[position]
            after = position + length_and_one
            if 0 < length_and_one < 0x80 and after <= self.end:
                self.position = after
                return str(self.view[position + 1 : after], "utf-8", "replace")
        return super().nullable_string()
