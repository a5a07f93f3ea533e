"""LZ4 frames of format 0: their descriptor's checksum is taken over the wrong bytes (KIP-57).

Kafka's first LZ4 frames (0.8.2) hash the frame's magic number with the descriptor; the LZ4 frame specification hashes
the descriptor alone. Format 1 has it right. Apache Kafka writes the wrong one in format 0 and, reading format 0, does
not look at it: so here. The blocks are the same.
"""

from __future__ import annotations

from typing import Final

from oncelog.records.compression import Buffer, Codec, compress, decompress
from oncelog.records.errors import CorruptBatch

_MAGIC_BYTES: Final = 4
_CONTENT_SIZE_FLAG: Final = 0x08
_DICTIONARY_FLAG: Final = 0x01

_PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 2246822519, 3266489917, 668265263, 374761393
_PRIME_1: Final = 2654435761
_MASK: Final = 0xFFFFFFFF


def compress_v0(data: Buffer) -> bytes:
    """``data`` as an LZ4 frame of format 0."""
    frame = bytearray(compress(Codec.LZ4, data))
    end = _descriptor_end(frame)
    frame[end] = header_checksum(frame[:end])
    return bytes(frame)


def decompress_v0(data: Buffer, max_bytes: int) -> bytes:
    """The bytes in an LZ4 frame of format 0, at most ``max_bytes``; its header checksum may be right, wrong or other.

    Raises TooMuchOutput, or CorruptBatch when ``data`` is no LZ4 frame.
    """
    frame = bytearray(data)
    end = _descriptor_end(frame)
    frame[end] = header_checksum(frame[_MAGIC_BYTES:end])
    return decompress(Codec.LZ4, frame, max_bytes)


def _descriptor_end(frame: Buffer) -> int:
    """The position of the header's checksum."""
    end = _MAGIC_BYTES + 2
    if len(frame) > end:
        flags: int = frame[_MAGIC_BYTES]
        end += (8 if flags & _CONTENT_SIZE_FLAG else 0) + (4 if flags & _DICTIONARY_FLAG else 0)
    if len(frame) <= end:
        raise CorruptBatch(f"LZ4 frame of {len(frame)} bytes ends inside its header")
    return end


def header_checksum(descriptor: Buffer) -> int:
    """The checksum of a frame header's bytes, of which there are fewer than 16: the second byte of their XXH32."""
    return _xxh32_of_few(descriptor) >> 8 & 0xFF


def _xxh32_of_few(data: Buffer) -> int:
    """XXH32 with seed 0 of fewer than 16 bytes: no frame header that is hashed here has more."""
    result = (_PRIME_5 + len(data)) & _MASK
    words = len(data) // 4
    for at in range(0, 4 * words, 4):
        word = int.from_bytes(data[at : at + 4], "little")
        result = _rotated(result + word * _PRIME_3, 17) * _PRIME_4 & _MASK
    for byte in data[4 * words :]:
        result = _rotated(result + byte * _PRIME_5, 11) * _PRIME_1 & _MASK
    result = (result ^ result >> 15) * _PRIME_2 & _MASK
    result = (result ^ result >> 13) * _PRIME_3 & _MASK
    return result ^ result >> 16


def _rotated(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> (32 - bits)) & _MASK
