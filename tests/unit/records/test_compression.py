"""Compression: framings, bounds, bombs."""

from __future__ import annotations

import cramjam
import pytest

from oncelog.records.compression import XERIAL_BLOCK_BYTES, XERIAL_HEADER, Codec, compress, decompress
from oncelog.records.errors import CorruptBatch, TooMuchOutput
from tests.memory import peak_bytes

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"the quick brown fox jumps over the lazy dog. " * 5000


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(range(256)) * 300], ids=["empty", "one", "text", "bytes"])
def test_what_was_compressed_comes_back(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec, memoryview(bytearray(packed)), 1 << 20) == data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_is_refused_without_the_memory_it_asks_for(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 << 20)) if codec is not Codec.GZIP else compress(codec, bytes(16 << 20))

    def unpack() -> None:
        with pytest.raises(TooMuchOutput) as refused:
            decompress(codec, bomb, 1 << 20)
        assert refused.value.max_bytes == 1 << 20

    assert peak_bytes(unpack, 6 << 20) < 6 << 20


@pytest.mark.parametrize("codec", COMPRESSED)
def test_garbage_and_truncation_are_corrupt(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    for damaged in (packed[: len(packed) // 2], packed[:3], b"\xff" * 40, b"\x00" * 40):
        with pytest.raises(CorruptBatch):
            decompress(codec, damaged, 1 << 20)


def test_levels_are_taken() -> None:
    assert decompress(Codec.ZSTD, compress(Codec.ZSTD, TEXT, 19), 1 << 20) == TEXT
    assert decompress(Codec.GZIP, compress(Codec.GZIP, TEXT, 9), 1 << 20) == TEXT
    assert decompress(Codec.LZ4, compress(Codec.LZ4, TEXT, 12), 1 << 20) == TEXT


def test_lz4_frames_have_independent_blocks_of_64_kib() -> None:
    # Apache Kafka refuses frames whose blocks depend on each other; bit 5 of the flags says they do not.
    frame = compress(Codec.LZ4, TEXT)
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert frame[4] & 0xE0 == 0x60
    assert frame[5] == 0x40


def test_raw_snappy_and_several_framed_blocks_are_read() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Codec.SNAPPY, raw, len(TEXT)) == TEXT
    framed = compress(Codec.SNAPPY, TEXT)
    assert framed.startswith(XERIAL_HEADER)
    assert len(TEXT) > 2 * XERIAL_BLOCK_BYTES
    assert decompress(Codec.SNAPPY, framed, len(TEXT)) == TEXT


@pytest.mark.parametrize(
    "blocks",
    [
        b"\x00\x00",
        b"\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff\x01",
        b"\x00\x00\x00\x05\xff\xff\xff\xff\x0f",  # claims 4 GiB
        b"\x00\x00\x00\x02\x05\x00",
    ],
)
def test_framed_snappy_believes_no_length(blocks: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decompress(Codec.SNAPPY, XERIAL_HEADER + blocks, 1 << 40)
    with pytest.raises(CorruptBatch):
        decompress(Codec.SNAPPY, XERIAL_HEADER[:12], 1 << 20)


def test_a_raw_snappy_length_that_its_bytes_cannot_give_is_corrupt() -> None:
    with pytest.raises(CorruptBatch):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x07" + bytes(100), 1 << 40)


def test_an_uncompressed_batch_keeps_to_the_bound_too() -> None:
    with pytest.raises(TooMuchOutput):
        decompress(Codec.NONE, b"xx", 1)
