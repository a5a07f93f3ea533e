"""Records of ours read by others, and the reverse: kafka-python, aiokafka, and the compression libraries of clients."""

from __future__ import annotations

import gzip
import warnings

import aiokafka.record.default_records as aiokafka_records
import lz4.frame
import pytest
import snappy
import zstandard

from oncelog.records.batch import crc_matches, iter_headers
from oncelog.records.builder import build_batch
from oncelog.records.compression import XERIAL_HEADER, Codec, compress, decompress
from oncelog.records.record import Record, read_records

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its own use of importlib.resources
    from kafka.record import MemoryRecords, MemoryRecordsBuilder

LIMIT = 1 << 20
TEXT = b"the quick brown fox jumps over the lazy dog. " * 3000
RECORDS = [
    Record(0, 1_000, None, b"first"),
    Record(1, 1_500, b"key", None, (("h", b"1"), ("h", None), ("ü", b""))),
    Record(2, 900, b"", TEXT[:5000]),
]


def read(batch: bytes) -> list[Record]:
    ((position, header),) = iter_headers(batch)
    assert crc_matches(batch, position, header)
    return list(read_records(batch, position, header, LIMIT))


@pytest.mark.parametrize("codec", list(Codec))
def test_kafka_python_reads_our_batches(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec)
    theirs = MemoryRecords(bytes(batch)).next_batch()
    assert theirs is not None
    assert theirs.validate_crc()
    assert [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == RECORDS


@pytest.mark.parametrize("codec", list(Codec))
def test_we_read_kafka_pythons_batches(codec: Codec) -> None:
    builder = MemoryRecordsBuilder(magic=2, compression_type=int(codec), batch_size=1 << 20)
    for record in RECORDS:
        builder.append(timestamp=record.timestamp, key=record.key, value=record.value, headers=list(record.headers))
    builder.close()
    assert read(bytes(builder.buffer())) == RECORDS


@pytest.mark.parametrize("codec", list(Codec))
def test_aiokafka_reads_our_batches(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec, producer_id=7, producer_epoch=1, base_sequence=5)
    theirs = aiokafka_records.DefaultRecordBatch(bytes(batch))
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (7, 1, 5)
    assert [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == RECORDS


@pytest.mark.parametrize("codec", list(Codec))
def test_we_read_aiokafkas_batches(codec: Codec) -> None:
    builder = aiokafka_records.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=True,
        producer_id=7,
        producer_epoch=1,
        base_sequence=5,
        batch_size=1 << 20,
    )
    for offset, record in enumerate(RECORDS):
        builder.append(offset, record.timestamp, record.key, record.value, list(record.headers))
    assert read(bytes(builder.build())) == RECORDS


def test_without_compression_all_three_write_the_same_bytes() -> None:
    ours = bytes(build_batch(RECORDS, leader_epoch=0))
    builder = aiokafka_records.DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for offset, record in enumerate(RECORDS):
        builder.append(offset, record.timestamp, record.key, record.value, list(record.headers))
    # They leave the leader epoch, which is outside the CRC, to the broker.
    assert bytes(builder.build())[16:] == ours[16:]


def test_gzip_against_the_standard_library() -> None:
    assert gzip.decompress(compress(Codec.GZIP, TEXT)) == TEXT
    assert decompress(Codec.GZIP, gzip.compress(TEXT), len(TEXT)) == TEXT
    assert decompress(Codec.GZIP, gzip.compress(TEXT[:9]) + gzip.compress(TEXT[9:]), len(TEXT)) == TEXT


def test_lz4_against_the_lz4_package() -> None:
    assert lz4.frame.decompress(compress(Codec.LZ4, TEXT)) == TEXT
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, TEXT))
    assert info["block_linked"] is False
    for linked in (False, True):
        for checksum in (False, True):
            frame = lz4.frame.compress(TEXT, block_linked=linked, content_checksum=checksum, store_size=checksum)
            assert decompress(Codec.LZ4, frame, len(TEXT)) == TEXT


def test_zstd_against_the_zstandard_package() -> None:
    assert zstandard.ZstdDecompressor().decompressobj().decompress(compress(Codec.ZSTD, TEXT)) == TEXT
    for sized in (False, True):
        frame = zstandard.ZstdCompressor(write_content_size=sized).compress(TEXT)
        assert decompress(Codec.ZSTD, frame, len(TEXT)) == TEXT


def test_snappy_against_python_snappy() -> None:
    assert decompress(Codec.SNAPPY, snappy.compress(TEXT), len(TEXT)) == TEXT
    framed = compress(Codec.SNAPPY, TEXT)
    assert framed.startswith(XERIAL_HEADER)
    blocks = []
    position = len(XERIAL_HEADER)
    while position < len(framed):
        size = int.from_bytes(framed[position : position + 4], "big")
        blocks.append(snappy.decompress(framed[position + 4 : position + 4 + size]))
        position += 4 + size
    assert b"".join(blocks) == TEXT
