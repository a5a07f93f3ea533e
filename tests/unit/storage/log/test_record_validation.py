"""Validation of records before the append: what is small at once, what is much by a worker, and what is believed."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.records.batch import MAX_TIMESTAMP_POSITION, crc_matches
from oncelog.records.builder import append_record, build_batch, seal
from oncelog.records.compression import Codec, check_single_frame, compress
from oncelog.records.errors import CorruptBatch, TooMuchWork
from oncelog.records.record import Record
from oncelog.storage.errors import AppendRefused
from oncelog.storage.log.read import read_batches
from oncelog.storage.log.record_validation import INLINE_EFFORT, ValidatedRecords, validate_records
from oncelog.storage.log_config import INLINE_VALIDATION_BYTES, StorageConfig
from tests.unit.storage.support import NOW, SMALL, World, batch, content, headers

LARGE = SMALL._replace(segment_bytes=1 << 24, max_message_bytes=1 << 23)


def claims(data: bytearray, timestamp: int) -> bytearray:
    data[MAX_TIMESTAMP_POSITION : MAX_TIMESTAMP_POSITION + 8] = timestamp.to_bytes(8, "big", signed=True)
    seal(data)
    return data


def by_worker(world: World, data: bytearray) -> ValidatedRecords:
    steps = validate_records(data, world.config, NOW, 1 << 26, "t-0")
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: ValidatedRecords = end.value
            return value


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("claimed", [-1, 0, NOW, NOW + 100])
def test_the_largest_timestamp_is_computed(codec: Codec, claimed: int) -> None:
    world = World()
    world.append(claims(batch([b"a", b"b", b"c"], codec=codec), claimed))
    world.log.set_high_watermark(3)
    (header,) = headers(world.log)
    assert header.max_timestamp == NOW + 2
    assert crc_matches(content(read_batches(world.log, 0, max_bytes=1)), 0, header)
    assert world.log.segments.active.max_timestamp == (NOW + 2, 2)


@pytest.mark.parametrize(
    "data",
    [
        batch([bytes(INLINE_VALIDATION_BYTES), b"b"]),
        batch([bytes(3 * INLINE_VALIDATION_BYTES), b"b"], codec=Codec.ZSTD),
        build_batch([Record(-1, NOW, b"k", b"", (("", None),) * (INLINE_EFFORT + 1))]),
        build_batch([Record(-1, NOW, None, b"") for _ in range(5001)]),
    ],
    ids=["large", "decompressed", "headers", "many"],
)
def test_batches_that_may_take_long_are_left_to_a_worker(data: bytearray) -> None:
    world = World(LARGE)
    with pytest.raises(TooMuchWork):
        world.append(data, bounded=True)
    done = by_worker(world, data)
    assert done.refusal is None
    assert world.append(data, validated=done).base_offset == 0  # type: ignore[arg-type]  # by name


def test_a_wrong_checksum_is_refused_before_anything_is_decompressed() -> None:
    world = World(LARGE)
    data = batch([bytes(3 * INLINE_VALIDATION_BYTES), b"b"], codec=Codec.ZSTD)
    data[-1] ^= 1
    with pytest.raises(AppendRefused) as refused:
        world.append(data, bounded=True)
    assert refused.value.error_code == ErrorCode.CORRUPT_MESSAGE


def test_a_refusal_of_a_worker_is_that_of_the_append() -> None:
    world = World(LARGE)
    data = build_batch([Record(-1, NOW, None, b"") for _ in range(6000)], codec=Codec.GZIP)
    data[57:61] = (6001).to_bytes(4, "big")
    data[23:27] = (6000).to_bytes(4, "big")
    seal(data)
    worker = by_worker(world, data)
    assert worker.refusal is not None
    with pytest.raises(AppendRefused) as refused:
        world.append(bytearray(data), validated=worker)  # type: ignore[arg-type]  # by name
    assert refused.value.error_code == ErrorCode.INVALID_RECORD
    with pytest.raises(AppendRefused) as at_once:
        world.append(bytearray(data))
    assert at_once.value.message == refused.value.message
    assert (world.log.log_end_offset, world.log.size_bytes) == (0, 0), "no trace"


def test_a_bomb_is_refused_by_its_bound() -> None:
    world = World(LARGE, storage=StorageConfig(max_decompressed_bytes=1 << 20))
    with pytest.raises(AppendRefused, match="exceeds 1048576 bytes") as refused:
        world.append(batch([bytes(1 << 21)], codec=Codec.ZSTD))
    assert refused.value.error_code == ErrorCode.INVALID_RECORD


def test_a_payload_that_cannot_be_decompressed_says_so_to_its_producer() -> None:
    data = batch(codec=Codec.LZ4)
    data[70] ^= 0xFF
    seal(data)
    with pytest.raises(AppendRefused, match="cannot be read as lz4") as refused:
        World().append(data)
    assert (refused.value.error_code, refused.value.sent_to_client) == (ErrorCode.UNKNOWN_SERVER_ERROR, True)


def test_headers_are_believed_where_the_broker_is_told_to() -> None:
    world = World(storage=StorageConfig(validates_records=False))
    one_less = batch([b"a"])
    one_less[57:61], one_less[23:27] = (2).to_bytes(4, "big"), (1).to_bytes(4, "big")
    seal(one_less)
    assert world.append(one_less).record_count == 2
    world.append(claims(batch([b"a", b"b"]), NOW))
    world.append(claims(batch([b"a", b"b"]), -1))
    world.log.set_high_watermark(6)
    assert [header.max_timestamp for header in headers(world.log)] == [NOW, NOW, NOW + 1], "but not what cannot be"


def test_frames_that_javas_consumers_cannot_read() -> None:
    body = bytes(100)
    frame = compress(Codec.LZ4, body)
    check_single_frame(Codec.LZ4, memoryview(frame))
    linked = bytearray(frame)
    linked[4] &= ~0x20
    for wrong in (frame + frame, frame + b"\0", bytes(linked), b"\x50\x2a\x4d\x18\4\0\0\0skip" + frame):
        with pytest.raises(CorruptBatch):
            check_single_frame(Codec.LZ4, memoryview(wrong))
    check_single_frame(Codec.ZSTD, memoryview(compress(Codec.ZSTD, body) * 2))


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(("count", "codec"), [(0, Codec.LZ4), (-1, Codec.LZ4), (0, Codec.NONE), (2, 5), (2, 7)])
def test_headers_that_refuse_a_batch_do_so_behind_a_worker_too(large: bool, count: int, codec: int) -> None:
    world = World(LARGE)
    payload = bytes(2 * INLINE_VALIDATION_BYTES) if large else compress(Codec.LZ4, b"")
    data = build_batch([Record(-1, NOW, b"k", b"v")])[:61] + payload
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[22] = codec
    data[23:27] = (count - 1).to_bytes(4, "big", signed=True)
    data[57:61] = count.to_bytes(4, "big", signed=True)
    seal(data)
    worker = by_worker(world, data)
    expected = ErrorCode.UNKNOWN_SERVER_ERROR if codec >= 5 else ErrorCode.INVALID_RECORD
    for options in ({"validated": worker}, {"bounded": True}):
        with pytest.raises(AppendRefused) as refused:
            world.append(data, **options)  # type: ignore[arg-type]  # by name
        assert refused.value.error_code == expected


def test_records_that_are_all_before_the_base_are_inspected_with_effort() -> None:
    world = World(LARGE)
    few = build_batch([Record(-1, NOW + 10_000, b"k", b"v")])
    body = bytearray(61)
    for number in range(1000):
        append_record(body, Record(0, 0, None, b""), number, -1 - number)
    body[:61] = few[:61]
    body[8:12] = (len(body) - 12).to_bytes(4, "big")
    body[23:27], body[57:61] = (999).to_bytes(4, "big"), (1000).to_bytes(4, "big")
    seal(body)
    with pytest.raises(TooMuchWork):
        world.append(body, bounded=True)
    assert by_worker(world, body).max_timestamp == NOW + 9_999
