"""LZ4 frames of format 0, whose header checksum covers the wrong bytes (KIP-57).

Kafka's first LZ4 frames (0.8.2) hash the magic number with the descriptor; the specification, like format 1, hashes the
descriptor alone. In format 0 Apache Kafka writes the wrong checksum and ignores it when reading; so does this module.
The blocks are the same.
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
    frame = bytearray(compress(Codec.LZ4, data))
    end = _descriptor_end(frame)
    frame[end] = header_checksum(frame[:end])
    return bytes(frame)


def decompress_v0(data: Buffer, max_bytes: int) -> bytes:
    """The contents of an LZ4 frame of format 0; the header checksum is ignored. Raises TooMuchOutput beyond
    ``max_bytes``, or CorruptBatch if ``data`` is no LZ4 frame.
    """
    frame = bytearray(data)
    end = _descriptor_end(frame)
    frame[end] = header_checksum(frame[_MAGIC_BYTES:end])
    return decompress(Codec.LZ4, frame, max_bytes)


def _descriptor_end(frame: Buffer) -> int:
    end = _MAGIC_BYTES + 2
    if len(frame) > end:
        flags: int = frame[_MAGIC_BYTES]
        end += (8 if flags & _CONTENT_SIZE_FLAG else 0) + (4 if flags & _DICTIONARY_FLAG else 0)
    if len(frame) <= end:
        raise CorruptBatch(f"LZ4 frame of {len(frame)} bytes ends inside its header")
    return end


def header_checksum(descriptor: Buffer) -> int:
    """The checksum of a frame header of fewer than 16 bytes: the second byte of its XXH32."""
    return _xxh32_of_few(descriptor) >> 8 & 0xFF


def _xxh32_of_few(data: Buffer) -> int:
    """XXH32 with seed 0, for fewer than 16 bytes; no frame header hashed here is longer."""
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
