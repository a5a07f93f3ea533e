"""Zigzag varints of record bodies (Protocol Buffers' encoding): at most 5 bytes for 32 bits, 10 for 64."""

from __future__ import annotations

from typing import Final

from oncelog.records.errors import CorruptBatch

MAX_VARINT_BYTES: Final = 5
MAX_VARLONG_BYTES: Final = 10


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A 32-bit value and the position after it. Raises CorruptBatch if it is longer or the data ends."""
    if position + 1 < len(data):  # nearly always, and nearly always it has one byte or two
        low = data[position]
        if low < 0x80:
            return (low >> 1) ^ -(low & 1), position + 1
        high = data[position + 1]
        if high < 0x80:
            raw = low & 0x7F | high << 7
            return (raw >> 1) ^ -(raw & 1), position + 2
    return _read(data, position, MAX_VARINT_BYTES, 0xFFFFFFFF)


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    """A 64-bit value and the position after it. Raises CorruptBatch if it is longer or the data ends."""
    return _read(data, position, MAX_VARLONG_BYTES, 0xFFFFFFFFFFFFFFFF)


def _read(data: bytes, position: int, max_bytes: int, mask: int) -> tuple[int, int]:
    raw = shift = 0
    for at in range(position, min(position + max_bytes, len(data))):
        byte = data[at]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= mask
            return (raw >> 1) ^ -(raw & 1), at + 1
        shift += 7
    raise CorruptBatch(f"the variable-length integer at {position} is too long or truncated")


def append_varint(output: bytearray, value: int) -> None:
    """Append ``value`` (32 or 64 bits, signed) to ``output``."""
    if 0 <= value < len(LENGTHS):
        output += LENGTHS[value]
    else:
        _append_any(output, value)


def _append_any(output: bytearray, value: int) -> None:
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    while raw > 0x7F:
        output.append(raw & 0x7F | 0x80)
        raw >>= 7
    output.append(raw)


def _encoded(value: int) -> bytes:
    output = bytearray()
    _append_any(output, value)
    return bytes(output)


LENGTHS: Final = tuple(_encoded(value) for value in range(512))
"""Encodings of short lengths."""
