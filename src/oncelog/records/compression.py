"""Compression codecs of record batches, with a hard bound on decompressed sizes.

No output buffer has more than ``max_bytes`` bytes, whatever the input claims. More output raises TooMuchOutput.

Framing as in Apache Kafka's clients: gzip; snappy in blocks behind snappy-java's header; lz4 frames with independent
blocks, the only ones that Apache Kafka reads (KIP-57); zstd frames (KIP-110).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

import cramjam

from oncelog.base.units import MIB
from oncelog.records.errors import CorruptBatch, TooMuchOutput

Buffer = bytes | bytearray | memoryview


class Codec(IntEnum):
    """Compression codec, bits 0–2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
"""snappy-java's stream header: magic, version and lowest compatible version."""
XERIAL_MAGIC: Final = XERIAL_HEADER[:8]
XERIAL_BLOCK_BYTES: Final = 32 * 1024
_INT32: Final = struct.Struct(">i")

FIRST_GUESS_BYTES: Final = 16 * 1024
SNAPPY_MAX_RATIO: Final = 64
"""A snappy copy of two bytes yields at most 64; no element yields more per byte."""
_OUTPUT_FULL: Final = "failed to write whole buffer"


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress as Apache Kafka's clients do; ``level`` for gzip (0–9), lz4 (1–12) and zstd (1–22)."""
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level))
    if codec is Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, level))
    if codec is Codec.LZ4:
        compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        compressor.compress(bytes(data))
        return bytes(compressor.finish())
    return _compress_snappy(data)


def decompress(codec: Codec, data: Buffer, max_bytes: int) -> bytes:
    """The decompressed bytes, at most ``max_bytes``. Raises TooMuchOutput for more, CorruptBatch if ``data`` is not in
    the codec's format."""
    if codec is Codec.NONE:
        if len(data) > max_bytes:
            raise TooMuchOutput(max_bytes)
        return bytes(data)
    if codec is Codec.SNAPPY:
        return _decompress_snappy(memoryview(data), max_bytes)
    module: Any = _FRAMED[codec]
    return _grow_into(module.decompress_into, memoryview(data), max_bytes)


def decompress_into(codec: Codec, data: Buffer, room: memoryview) -> int | None:
    """Decompress to the beginning of ``room``, whose rest may be overwritten. Returns the size, or None if it does not
    fit. Raises CorruptBatch if ``data`` is not in the codec's format."""
    if codec in _FRAMED:
        try:
            return int(_FRAMED[codec].decompress_into(memoryview(data), room))
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL in str(error):
                return None
            raise CorruptBatch(f"cannot decompress: {error}") from None
    try:
        plain = decompress(codec, data, len(room))
    except TooMuchOutput:
        return None
    room[: len(plain)] = plain
    return len(plain)


def check_single_frame(codec: Codec, data: memoryview) -> None:
    """Raise CorruptBatch for an lz4 frame that Apache Kafka's consumers cannot read: linked blocks, or several frames.
    Damage is left to ``decompress``."""
    if codec is not Codec.LZ4 or len(data) < _LZ4_SMALLEST:
        return
    flags = data[4]
    if bytes(data[:4]) != _LZ4_MAGIC or not flags & _LZ4_INDEPENDENT:
        raise CorruptBatch("lz4 data with linked blocks, or with bytes before its frame: consumers cannot read it")
    at = 7 + (8 if flags & _LZ4_CONTENT_SIZE else 0) + (4 if flags & _LZ4_DICTIONARY else 0)
    block_checksum = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    while at + 4 <= len(data):
        size = _LITTLE.unpack_from(data, at)[0] & 0x7FFFFFFF
        at += 4
        if not size:
            at += 4 if flags & _LZ4_CONTENT_CHECKSUM else 0
            if at < len(data):
                raise CorruptBatch(f"{len(data) - at} bytes after the first lz4 frame: consumers do not read them")
            return
        at += size + block_checksum


_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_SMALLEST: Final = 11
"""Bytes of an empty frame."""
_LZ4_INDEPENDENT: Final = 0x20
_LZ4_BLOCK_CHECKSUM: Final = 0x10
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_CONTENT_CHECKSUM: Final = 0x04
_LZ4_DICTIONARY: Final = 0x01
_LITTLE: Final = struct.Struct("<I")

_FRAMED: Final[dict[Codec, Any]] = {Codec.GZIP: cramjam.gzip, Codec.LZ4: cramjam.lz4, Codec.ZSTD: cramjam.zstd}


def _grow_into(decompress_into: Callable[[Buffer, memoryview], int], data: memoryview, max_bytes: int) -> bytes:
    """Decompress into a buffer that quadruples until the output fits or the bound is reached."""
    size = min(max(FIRST_GUESS_BYTES, 4 * len(data)), max_bytes)
    while True:
        output = _room(size)
        try:
            written = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise CorruptBatch(f"cannot decompress: {error}") from None
            if size >= max_bytes:
                raise TooMuchOutput(max_bytes) from None
            # The frames declare no size to be trusted, and starting over costs at most a third more work.
            size = min(4 * size, max_bytes)
        else:
            return bytes(output[:written])


def _room(size: int) -> memoryview:
    if size <= MIB:
        return memoryview(bytearray(size))
    # Pages are allocated as they are written; a large bytearray is zeroed at once.
    from mmap import mmap  # few batches are so large

    return memoryview(mmap(-1, size))


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [XERIAL_HEADER]
    # snappy-java's block size; an empty input is a header alone.
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, max_bytes: int) -> bytes:
    if data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _decompress_raw_snappy(data, max_bytes)
    if len(data) < len(XERIAL_HEADER):
        raise CorruptBatch("the snappy stream ends inside its header")
    parts: list[bytes] = []
    left = max_bytes
    position = len(XERIAL_HEADER)
    while position < len(data):
        if len(data) - position < _INT32.size:
            raise CorruptBatch("the snappy stream ends inside a block length")
        size = _INT32.unpack_from(data, position)[0]
        position += _INT32.size
        if size <= 0 or size > len(data) - position:
            raise CorruptBatch(f"snappy block of {size} bytes, {len(data) - position} left")
        try:
            block = _decompress_raw_snappy(data[position : position + size], left)
        except TooMuchOutput:
            raise TooMuchOutput(max_bytes) from None
        parts.append(block)
        left -= len(block)
        position += size
    return b"".join(parts)


# Raw snappy is read for librdkafka and others.
def _decompress_raw_snappy(block: memoryview, max_bytes: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        # A declared size allocates the buffer: believe only what the input can produce.
        if size > SNAPPY_MAX_RATIO * len(block):
            raise CorruptBatch(f"a snappy block of {len(block)} bytes claims {size} decompressed bytes")
        if size > max_bytes:
            raise TooMuchOutput(max_bytes)
        output = bytearray(size)
        written = cramjam.snappy.decompress_raw_into(block, output)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"cannot decompress: {error}") from None
    if written != size:
        raise CorruptBatch(f"a snappy block claims {size} decompressed bytes and has {written}")
    return bytes(output)
