"""Batch headers: layout, patchers, and what is refused."""

from __future__ import annotations

import pytest

from oncelog.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    CorruptBatch,
    TruncatedBatch,
    UnsupportedMagic,
    compute_crc,
    crc_matches,
    iter_headers,
    magic_at,
    next_sequence,
    read_header,
    set_base_offset_and_leader_epoch,
    set_timestamp_type,
)
from oncelog.records.builder import build_batch, end_transaction_marker
from oncelog.records.compression import Codec
from oncelog.records.control import ControlType, control_type, end_transaction_marker_of
from oncelog.records.record import Record, read_records

LIMIT = 1 << 20
RECORDS = [Record(-1, 1000 + i, b"key", b"value %d" % i) for i in range(3)]

# Two batches that librdkafka and Apache Kafka 4.3.1 left in a partition: a transactional record and its commit marker.
REAL_TRANSACTION = bytes.fromhex(
    "00000000000000000000003900000000028a3f594b001000000000000001a1fd2a99f4000001a1fd2a99f400000000000000000000000000"
    "00000000010e00000001027800000000000000000100000042000000000254d12804003000000000000001a1fd2a9a28000001a1fd2a9a28"
    "00000000000000000000ffffffff000000012000000008000000010c00000000000000"
)


def test_the_header_of_a_real_batch_is_read_field_by_field() -> None:
    (start, data), (_, marker) = iter_headers(REAL_TRANSACTION)
    assert start == 0
    assert data == BatchHeader(
        base_offset=0,
        batch_length=57,
        partition_leader_epoch=0,
        magic=2,
        crc=0x8A3F594B,
        attributes=0x10,
        last_offset_delta=0,
        base_timestamp=1795248790004,
        max_timestamp=1795248790004,
        producer_id=0,
        producer_epoch=0,
        base_sequence=0,
        record_count=1,
    )
    assert (data.is_transactional, data.is_control, data.codec, data.last_sequence) == (True, False, Codec.NONE, 0)
    assert (marker.is_transactional, marker.is_control, marker.last_sequence) == (True, True, -1)
    assert marker.next_offset == 2


def test_a_marker_is_byte_for_byte_what_apache_kafka_writes() -> None:
    (_, _), (start, header) = iter_headers(REAL_TRANSACTION)
    built = end_transaction_marker(
        producer_id=0,
        producer_epoch=0,
        committed=True,
        coordinator_epoch=0,
        timestamp=header.base_timestamp,
        base_offset=1,
        leader_epoch=0,
    )
    assert bytes(built) == REAL_TRANSACTION[start:]
    (record,) = read_records(REAL_TRANSACTION, start, header, LIMIT)
    assert end_transaction_marker_of(record) == (True, 0)


def test_control_records_of_other_types_are_no_markers() -> None:
    leader_change = Record(0, 0, b"\x00\x00\x00\x02", b"")
    assert end_transaction_marker_of(leader_change) is None
    assert control_type(b"\x00\x00\x7f\x00") is ControlType.UNKNOWN
    for key, value in ((None, b""), (b"\x00", b""), (b"\x00\x00\x00\x01", b"\x00"), (b"\xff\xff\x00\x01", b"\x00" * 6)):
        with pytest.raises(CorruptBatch):
            end_transaction_marker_of(Record(0, 0, key, value))


def test_base_offset_and_leader_epoch_lie_outside_the_crc() -> None:
    batch = build_batch(RECORDS)
    set_base_offset_and_leader_epoch(memoryview(batch), 0, 1 << 40, 7)
    header = read_header(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 7)
    assert crc_matches(batch, 0, header)


def test_log_append_time_is_covered_by_a_new_crc_and_given_to_every_record() -> None:
    batch = build_batch(RECORDS)
    set_timestamp_type(memoryview(batch), 0, 5000, by_broker=True)
    header = read_header(batch)
    assert crc_matches(batch, 0, header)
    assert header.is_log_append_time
    assert [record.timestamp for record in read_records(batch, 0, header, LIMIT)] == [5000] * 3


def test_a_flipped_bit_anywhere_after_the_crc_is_noticed() -> None:
    batch = build_batch(RECORDS)
    for position in range(17, len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 0x10
        try:
            assert not crc_matches(damaged, 0, read_header(damaged))
        except CorruptBatch:
            pytest.fail("the length and magic were not touched")


def test_batches_are_walked_to_the_end_of_the_buffer() -> None:
    first, second = build_batch(RECORDS), build_batch(RECORDS, base_offset=3)
    headers = list(iter_headers(first + second))
    assert [(position, header.base_offset) for position, header in headers] == [(0, 0), (len(first), 3)]
    assert [position for position, _ in iter_headers(first + second, len(first))] == [len(first)]
    walk = iter_headers((first + second)[:-1])
    assert next(walk)[0] == 0
    with pytest.raises(TruncatedBatch):
        next(walk)
    with pytest.raises(TruncatedBatch):
        read_header(first[: HEADER_SIZE - 1])


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_other_formats_are_recognised_and_refused(magic: int) -> None:
    batch = build_batch(RECORDS)
    batch[16] = magic & 0xFF
    assert magic_at(batch) == magic
    for buffer in (batch, batch[:30]):
        with pytest.raises(UnsupportedMagic) as refused:
            read_header(buffer)
        assert refused.value.magic == magic


@pytest.mark.parametrize("length", [0, 48, -1, -(2**31)])
def test_a_length_below_a_header_is_refused(length: int) -> None:
    batch = build_batch(RECORDS)
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatch):
        read_header(batch)


def test_sequences_wrap_to_zero() -> None:
    assert next_sequence(2**31 - 1, 1) == 0
    assert next_sequence(2**31 - 2, 5) == 3
    header = read_header(build_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert header.last_sequence == 0


def test_an_unknown_codec_is_refused_when_asked_for() -> None:
    batch = build_batch(RECORDS)
    batch[22] = 7
    with pytest.raises(CorruptBatch):
        _ = read_header(batch).codec


def test_a_batch_may_outlive_its_records() -> None:
    batch = build_batch(
        [], base_offset=10, last_offset=14, max_timestamp=99, producer_id=5, producer_epoch=1, base_sequence=3
    )
    header = read_header(batch)
    assert (header.record_count, header.base_offset, header.last_offset, header.last_sequence) == (0, 10, 14, 7)
    assert crc_matches(batch, 0, header)
    assert list(read_records(batch, 0, header, LIMIT)) == []
    with pytest.raises(ValueError, match="last offset"):
        build_batch([])


def test_gaps_are_kept_and_the_delete_horizon_is_the_base_timestamp() -> None:
    kept = [Record(12, 500, b"a", None), Record(15, 400, b"b", b"x")]
    batch = build_batch(kept, base_offset=10, last_offset=19, delete_horizon_ms=777)
    header = read_header(batch)
    assert (header.delete_horizon_ms, header.next_offset, header.max_timestamp) == (777, 20, 500)
    assert list(read_records(batch, 0, header, LIMIT)) == kept
    with pytest.raises(ValueError, match="after"):
        build_batch(list(reversed(kept)), base_offset=10)


def test_the_stored_crc_is_that_of_the_crc32c_package() -> None:
    batch = build_batch(RECORDS)
    header = read_header(batch)
    assert header.crc == compute_crc(batch, 0, header)
