"""Reads values as Java's ``DataOutput`` wrote them. Every length is checked against the bytes that are left.

A file may be damaged or hostile: bytes are views, and all counts of one file together are at most ``MAX_ELEMENTS``.
"""

from __future__ import annotations

import struct
from typing import Final

from oncelog.client.errors import ClientError

MAX_ELEMENTS: Final = 2_000_000
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_SHORT: Final = struct.Struct(">h")
_UNSIGNED_SHORT: Final = struct.Struct(">H")


class FlinkStateError(ClientError):
    """A checkpoint cannot be read; the message names the file, the place and the problem."""


class DataInput:
    """A position in bytes that Java wrote; ``name`` names them in errors."""

    def __init__(self, data: memoryview, name: str) -> None:
        self._data, self._name = data, name
        self.position = 0
        self._elements = 0

    @property
    def left(self) -> int:
        return len(self._data) - self.position

    def error(self, problem: str) -> FlinkStateError:
        return FlinkStateError(f"{self._name} is damaged at byte {self.position}: {problem}")

    def take(self, size: int) -> memoryview:
        if not 0 <= size <= self.left:
            raise self.error(f"{size} bytes are announced, and {self.left} are left")
        start = self.position
        self.position += size
        return self._data[start : self.position]

    def byte(self) -> int:
        return self.take(1)[0]

    def int16(self) -> int:
        return int(_SHORT.unpack(self.take(2))[0])

    def int32(self) -> int:
        return int(_INT.unpack(self.take(4))[0])

    def int64(self) -> int:
        return int(_LONG.unpack(self.take(8))[0])

    def text(self) -> str:
        """A string of ``writeUTF``: UTF-8 in which NUL and characters beyond 16 bits are written otherwise."""
        data = bytes(self.take(_UNSIGNED_SHORT.unpack(self.take(2))[0])).replace(b"\xc0\x80", b"\0")
        try:
            pairs = data.decode("utf-8", "surrogatepass")
            return pairs.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
        except UnicodeError:
            raise self.error("a string is not UTF-8") from None

    def count(self, noun: str) -> int:
        """The number of elements that follow."""
        number = self.int32()
        if number < 0:
            raise self.error(f"{number} {noun} are announced")
        return self.checked(number, noun)

    def checked(self, number: int, noun: str) -> int:
        """``number``, if as many elements can follow."""
        self._elements += number
        if number > self.left or self._elements > MAX_ELEMENTS:
            raise self.error(f"{number} {noun} are announced, and {self.left} bytes are left")
        return number

    def blob(self) -> memoryview:
        """Bytes with their length before them."""
        return self.take(self.int32())

    def finish(self) -> None:
        if self.left:
            raise self.error(f"{self.left} bytes follow the end")
