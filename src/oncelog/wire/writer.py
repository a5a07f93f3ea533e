"""Writes the protocol's primitive types into one growing buffer, with large records kept beside it.

A value that a version cannot carry (a null where none is allowed, a string that is too long, an integer out of range)
is our own mistake: it raises ValueError or struct.error, and never produces a truncated or padded message.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from oncelog.wire.chunks import Buffer, Chunk, Records, chunk_size
from oncelog.wire.reader import MAX_STRING_BYTES, repeated

COPY_BELOW_BYTES: Final = 1024
"""Smaller records in memory are copied: a chunk of their own costs more."""

KEEP_BYTES: Final = 64 * 1024
"""From this size on another writer's buffer becomes a chunk of its own; a smaller one is copied."""

_INT8 = Struct(">b")
_INT16 = Struct(">h")
_UINT16 = Struct(">H")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_FLOAT64 = Struct(">d")


def unsigned_varint(value: int) -> bytes:
    """7 bits a byte, least significant first."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    if value < 0 or value >= 1 << 32:
        raise ValueError(f"{value} is not an unsigned 32-bit integer")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_ONE_BYTE = [bytes((value,)) for value in range(0x80)]


class Writer:
    """A message being written in the original encodings (16-bit string lengths, 32-bit counts).

    ``buffer`` stays the same bytearray, so generated code may hold on to it.
    """

    __slots__ = ("_cuts", "buffer")

    def __init__(self, buffer: bytearray | None = None) -> None:
        self.buffer: bytearray = bytearray() if buffer is None else buffer
        self._cuts: list[tuple[int, Chunk]] = []
        """Chunks that belong before a position of ``buffer``."""

    def chunks(self) -> list[Chunk]:
        """The written message as chunks in order. The writer must not be used afterwards."""
        if not self._cuts:
            return [self.buffer]
        view = memoryview(self.buffer)
        chunks: list[Chunk] = []
        start = 0
        for position, chunk in self._cuts:
            if position > start:
                chunks.append(view[start:position])
                start = position
            chunks.append(chunk)
        if start < len(view):
            chunks.append(view[start:])
        return chunks

    @property
    def size_bytes(self) -> int:
        if not self._cuts:
            return len(self.buffer)
        return len(self.buffer) + sum(chunk_size(chunk) for _, chunk in self._cuts)

    # Fixed size; runs of fields are packed by the generated code itself.

    def int8(self, value: int) -> None:
        self.buffer += _INT8.pack(value)

    def int16(self, value: int) -> None:
        self.buffer += _INT16.pack(value)

    def uint16(self, value: int) -> None:
        self.buffer += _UINT16.pack(value)

    def int32(self, value: int) -> None:
        self.buffer += _INT32.pack(value)

    def int64(self, value: int) -> None:
        self.buffer += _INT64.pack(value)

    def float64(self, value: float) -> None:
        self.buffer += _FLOAT64.pack(value)

    def boolean(self, value: bool) -> None:
        self.buffer.append(1 if value else 0)

    def uuid(self, value: bytes) -> None:
        """16 bytes. Raises ValueError for another length."""
        if len(value) != 16:
            raise ValueError(f"an id of {len(value)} bytes: it must have 16")
        self.buffer += value

    # Lengths and counts: -1 is null. The only things that differ between the two encodings.

    def _string_length(self, length: int) -> None:
        self.buffer += _INT16.pack(length)

    def _length(self, length: int) -> None:
        self.buffer += _INT32.pack(length)

    def string(self, value: str | None) -> None:
        if value is None:
            raise ValueError("null where this version needs a string")
        encoded = value.encode()
        if len(encoded) > MAX_STRING_BYTES:
            raise ValueError(f"a string of {len(encoded)} bytes exceeds {MAX_STRING_BYTES}")
        self._string_length(len(encoded))
        self.buffer += encoded

    def nullable_string(self, value: str | None) -> None:
        """UTF-8, at most 32,767 bytes, or null."""
        if value is None:
            self._string_length(-1)
        else:
            self.string(value)

    def byte_string(self, value: Buffer | None) -> None:
        if value is None:
            raise ValueError("null where this version needs bytes")
        self._length(len(value))
        self.buffer += value

    def nullable_records(self, value: Records | None) -> None:
        """Record batches or null; only small ones are copied."""
        if value is None:
            self._length(-1)
            return
        chunks = value if isinstance(value, list) else [value]
        self._length(sum(map(chunk_size, chunks)))
        for chunk in chunks:
            if isinstance(chunk, (bytes, bytearray, memoryview)) and len(chunk) < COPY_BELOW_BYTES:
                self.buffer += chunk
            else:
                self._cuts.append((len(self.buffer), chunk))

    def records(self, value: Records | None) -> None:
        """Record batches, like ``nullable_records``; null is refused."""
        if value is None:
            raise ValueError("null where this version needs records")
        self.nullable_records(value)

    def written(self, other: Writer) -> None:
        """Append the contents of ``other``, which must not be written to afterwards; large ones are not copied."""
        start = len(self.buffer)
        if len(other.buffer) >= KEEP_BYTES:
            self._cuts += [(start, chunk) for chunk in other.chunks()]
            return
        self._cuts += [(start + position, chunk) for position, chunk in other._cuts]
        self.buffer += other.buffer

    def array_count(self, values: Sequence[object] | None) -> None:
        """The count before the elements; null is refused."""
        if values is None:
            raise ValueError("null where this version needs an array")
        self._length(len(values))

    def nullable_array_count(self, values: Sequence[object] | None) -> None:
        """The count before the elements, or null."""
        self._length(-1 if values is None else len(values))

    def string_array(self, values: Sequence[str] | None) -> None:
        self.array_count(values)
        for value in values or ():
            self.string(value)

    def nullable_string_array(self, values: Sequence[str] | None) -> None:
        self.nullable_array_count(values)
        for value in values or ():
            self.string(value)

    def integer_array(self, code: str, values: Sequence[int] | None) -> None:
        self.array_count(values)
        if values:
            self.buffer += repeated(code, len(values)).pack(*values)

    def nullable_integer_array(self, code: str, values: Sequence[int] | None) -> None:
        """Integers of struct's format ``code``, or null."""
        if values is None:
            self._length(-1)
        else:
            self.integer_array(code, values)

    # Structs that may be null (KIP-893) and tagged fields (KIP-482).

    def present(self, value: object) -> None:
        """The marker before a nullable struct."""
        self.buffer.append(0xFF if value is None else 1)

    def begin_tags(self) -> int:
        """Write a zero count of tagged fields; returns its position, for :meth:`begin_tag`. At most 127 fit."""
        self.buffer.append(0)
        return len(self.buffer) - 1

    def begin_tag(self, count_position: int, tag: int) -> int:
        """Begin a tagged field, in ascending order of tags; returns its position, for :meth:`end_tag`."""
        self.buffer[count_position] += 1
        self.buffer += unsigned_varint(tag)
        return len(self.buffer)

    def end_tag(self, start: int) -> None:
        """Insert the size before what was written since ``start``."""
        self.buffer[start:start] = unsigned_varint(len(self.buffer) - start)


class CompactWriter(Writer):
    """The encodings of flexible versions (KIP-482): lengths and counts are written plus one, as unsigned varints; 0 is
    null."""

    __slots__ = ()

    def _length(self, length: int) -> None:
        if length < 0x7F:
            self.buffer.append(length + 1)
        else:
            self.buffer += unsigned_varint(length + 1)

    _string_length = _length

    def array_count(self, values: Sequence[object] | None) -> None:
        """The count before the elements, with a fast path for fewer than 127; null is refused."""
        if values is not None and (count := len(values)) < 0x7F:
            self.buffer.append(count + 1)
        else:
            super().array_count(values)
