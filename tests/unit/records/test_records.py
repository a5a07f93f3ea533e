"""Records inside a batch: what they must be, and that nothing else is believed."""

from __future__ import annotations

import pytest

from oncelog.records.batch import HEADER_SIZE, CorruptBatch, read_header
from oncelog.records.builder import append_record, build_batch, seal
from oncelog.records.compression import Codec
from oncelog.records.errors import TooMuchOutput, TruncatedBatch
from oncelog.records.record import Record, read_records, read_records_in_place

LIMIT = 1 << 20


def batch_of(body: bytes, count: int = 1) -> bytearray:
    """A batch with a good header and CRC over any bytes as records."""
    batch = build_batch([Record(0, 0, b"", b"")])
    del batch[HEADER_SIZE:]
    batch += body
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    seal(batch)
    return batch


def read(batch: bytearray, limit: int = LIMIT) -> list[Record]:
    return list(read_records(batch, 0, read_header(batch), limit))


def encoded() -> bytearray:
    body = bytearray()
    append_record(body, Record(0, 0, b"k", b"v"), 0, 0)
    return body


def test_nothing_and_empty_are_different() -> None:
    records = [
        Record(0, 5, None, None),
        Record(1, 6, b"", b"", (("", b""), ("h", None), ("h", b"again"))),
        Record(2, 4, b"k", None, (("ключ", b"\xff"),)),
    ]
    assert read(build_batch(records)) == records


def test_timestamps_may_go_back_and_be_negative() -> None:
    records = [Record(0, 1 << 50, None, b""), Record(1, -1, None, b"")]
    assert read(build_batch(records)) == records


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x7f",
        b"\xff\xff\xff\xff\xff\x01",
        b"\x01",  # length −1
        b"\x0a\x00\x00\x00\x01\x01",  # shorter than any record
        b"\x0c\x00\x00\x00\x01\x7e\x00",  # value longer than the record
        b"\x0c\x00\x00\x00\x01\x01\x01",  # −1 headers
        b"\x0c\x00\x00\x00\x01\x01\x7e",  # 63 headers in no bytes
        b"\x10\x00\x00\x00\x01\x01\x02\x01\x01",  # a header without key
        b"\x0e\x00\x00\x00\x01\x01\x00\x00",  # a byte left in the record
    ],
)
def test_a_malformed_record_is_corrupt(body: bytes) -> None:
    with pytest.raises(CorruptBatch):
        read(batch_of(body))


def test_a_header_name_that_is_no_utf8_reads_with_replacements() -> None:
    (record,) = read(batch_of(b"\x12\x00\x00\x00\x01\x01\x02\x02\xff\x01"))
    assert record.headers == (("\ufffd", None),)


def test_the_number_of_records_must_be_right() -> None:
    body = bytes(encoded() + encoded())
    assert len(read(batch_of(body, 2))) == 2
    for count in (-1, 0, 1, 3, 2**31 - 1):
        with pytest.raises(CorruptBatch):
            read(batch_of(body, count))


def test_a_batch_cut_short_is_truncated() -> None:
    batch = build_batch([Record(0, 0, b"k", b"v")])
    with pytest.raises(TruncatedBatch):
        list(read_records(batch[:-1], 0, read_header(batch), LIMIT))


@pytest.mark.parametrize("codec", list(Codec))
def test_the_bound_on_decompressed_bytes_is_exact(codec: Codec) -> None:
    records = [Record(i, 0, None, bytes(1000)) for i in range(10)]
    size = len(build_batch(records)) - HEADER_SIZE
    batch = build_batch(records, codec=codec)
    assert read(batch, size) == records
    with pytest.raises(TooMuchOutput):
        read(batch, size - 1)


def test_records_read_in_place_are_the_same() -> None:
    records = [Record(0, 5, None, b"v" * 300, (("h", b"x"), ("n", None))), Record(1, 6, b"k", None, ())]
    batch = memoryview(bytes(7) + bytes(build_batch(records)))
    result = list(read_records_in_place(batch, 7, read_header(batch, 7)))
    assert result == list(read_records(batch, 7, read_header(batch, 7), 1000))
    assert all(isinstance(item, bytes) for item in (result[0].value, result[1].key, result[0].headers[0][1]))
    packed = bytes(build_batch(records, codec=Codec.GZIP))
    with pytest.raises(TruncatedBatch):
        list(read_records_in_place(packed, 0, read_header(packed)))
    with pytest.raises(TruncatedBatch):
        list(read_records_in_place(batch[:-1], 7, read_header(batch, 7)))
