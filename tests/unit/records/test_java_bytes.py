"""Batches as Apache Kafka 4.3.1 compressed them (topics whose compression.type is not the producer's)."""

from __future__ import annotations

import pytest

from oncelog.records.batch import crc_matches, iter_headers
from oncelog.records.compression import Codec
from oncelog.records.record import Record, read_records

TIMESTAMP = 1_700_000_000_000
RECORDS = [Record(i, TIMESTAMP + i, b"k%d" % i, b"value " * 30) for i in range(4)]

BATCHES = {
    Codec.GZIP: (
        "00000000000000000000007300000000028d417e170001000000030000018bcfe568000000018bcfe56803ffffffffffffffffffffffffffff"
        "000000041f8b08000000000000fffbc5c4c0c0c0926df082a92c31a734556168910cbf9818989858b20d87aef3595858b28d86aef3d9d858b2"
        "8d87a8f301d2c5d76dfc020000"
    ),
    Codec.SNAPPY: (
        "0000000000000000000000920000000002ee0661c30002000000030000018bcfe568000000018bcfe56803ffffffffffffffffffffffffffff"
        "0000000482534e415050590000000001000000010000004dfc053cfa02000000046b30e80276616c756520fe0600fe0600b606002000fa0200"
        "0202046b31febf00febf00e6bf00100404046b32febf00febf00e6bf00100606046b33febf00febf00dabf00"
    ),
    Codec.LZ4: (
        "00000000000000000000007a000000000249b4c14c0003000000030000018bcfe568000000018bcfe56803ffffffffffffffffffffffffffff"
        "0000000404224d186040823a000000ff01fa02000000046b30e80276616c75652006009b9f00fa02000202046b31bf00a75f0404046b32bf00"
        "a75f0606046b33bf009f506c7565200000000000"
    ),
    Codec.ZSTD: (
        "00000000000000000000006f000000000215d6cb1e0004000000030000018bcfe568000000018bcfe56803ffffffffffffffffffffffffffff"
        "0000000428b52ffd00589401003402fa02000000046b30e80276616c75652000fa02000202046b310404046b320606046b3304042b34a06fa0"
        "6f4273ac5296010000"
    ),
}


@pytest.mark.parametrize("codec", list(BATCHES))
def test_javas_compression_is_read(codec: Codec) -> None:
    batch = bytes.fromhex(BATCHES[codec])
    ((position, header),) = iter_headers(batch)
    assert header.codec is codec
    assert crc_matches(batch, position, header)
    assert list(read_records(batch, position, header, 1 << 20)) == RECORDS
