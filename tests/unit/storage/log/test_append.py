"""Appending: what is accepted, what is refused and how, and that a refusal leaves no trace."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.units import HOUR_MS
from oncelog.records.batch import crc_matches, read_header
from oncelog.records.builder import build_batch, seal
from oncelog.records.compression import Codec
from oncelog.records.record import Record
from oncelog.storage.errors import AppendRefused, SyncFailed
from oncelog.storage.log.append import append_batch
from oncelog.storage.log.read import read_batches
from oncelog.storage.log_config import LogConfig
from tests.unit.storage.support import NOW, SMALL, World, batch, content, headers, records


def refused(world: World, data: bytearray, **options: bool) -> AppendRefused:
    """Append, which must be refused without a trace."""
    log = world.log
    before = (log.log_end_offset, log.size_bytes, dict(log.producers.entries), log.leader_epoch, world.names())
    with pytest.raises(AppendRefused) as raised:
        world.append(data, **options)
    assert (log.log_end_offset, log.size_bytes, log.producers.entries, log.leader_epoch, world.names()) == before
    return raised.value


def test_offsets_are_set_in_place_and_bytes_stored_as_they_came() -> None:
    world = World()
    first = world.append(batch([b"a", b"b"]))
    data = batch([b"c"], codec=Codec.ZSTD)
    second = append_batch(world.log, data, now_ms=NOW, leader_epoch=4)
    assert (first.base_offset, first.last_offset, first.log_append_time_ms) == (0, 1, -1)
    assert (second.base_offset, second.last_offset, second.record_count) == (2, 2, 1)
    world.log.set_high_watermark(3)
    stored = content(read_batches(world.log, 2, max_bytes=10_000))
    assert stored == bytes(data)
    header = read_header(stored)
    assert (header.base_offset, header.partition_leader_epoch) == (2, 4)
    assert crc_matches(stored, 0, header)
    assert world.log.leader_epoch == 4


def test_structural_refusals() -> None:
    world = World(LogConfig(max_message_bytes=500))
    good = batch([b"x"])
    assert refused(world, bytearray()).error_code == ErrorCode.INVALID_RECORD
    for cut in (5, 16, 17, 30, 61, len(good) - 1):
        assert refused(world, good[:cut]).error_code == ErrorCode.INVALID_RECORD, cut
    assert refused(world, good + good).error_code == ErrorCode.INVALID_RECORD
    short = bytearray(good)
    short[8:12] = (48).to_bytes(4, "big")
    assert refused(world, short[:60]).error_code == ErrorCode.CORRUPT_MESSAGE
    short[8:12] = (13).to_bytes(4, "big")
    assert refused(world, short).error_code == ErrorCode.CORRUPT_MESSAGE
    newer = bytearray(good)
    newer[16] = 3
    assert refused(world, newer).error_code == ErrorCode.CORRUPT_MESSAGE
    flipped = bytearray(good)
    flipped[-1] ^= 1
    assert refused(world, flipped).error_code == ErrorCode.CORRUPT_MESSAGE
    old = bytearray(good)
    old[16] = 1
    assert refused(world, old).error_code == ErrorCode.INVALID_RECORD
    assert refused(world, batch([bytes(500)])).error_code == ErrorCode.MESSAGE_TOO_LARGE
    small = World(LogConfig(segment_bytes=200))
    assert refused(small, batch([bytes(200)])).error_code == ErrorCode.RECORD_LIST_TOO_LARGE


def test_half_a_batch_after_a_whole_one_is_cut_off() -> None:
    world = World()
    good = batch([b"x"])
    assert world.append(good + good[:-1]).size_bytes == len(good)
    assert world.append(good + b"#").base_offset == 1
    world.log.set_high_watermark(2)
    assert [record.offset for record in records(world.log)] == [0, 1]


def test_header_refusals() -> None:
    world = World()
    good = [Record(-1, NOW, b"k", b"v")]
    assert refused(world, build_batch(good, base_offset=5)).error_code == ErrorCode.INVALID_RECORD
    assert refused(world, build_batch(good, control=True)).error_code == ErrorCode.INVALID_RECORD
    assert refused(world, build_batch(good, last_offset=7)).error_code == ErrorCode.INVALID_RECORD
    assert refused(world, build_batch([], last_offset=0)).error_code == ErrorCode.INVALID_RECORD
    unsequenced = build_batch(good, producer_id=3, producer_epoch=0)
    assert refused(world, unsequenced).error_code == ErrorCode.INVALID_RECORD
    unknown_codec = batch()
    unknown_codec[22] |= 7
    seal(unknown_codec)
    assert refused(world, unknown_codec).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_keyless_records_on_a_compacted_topic() -> None:
    world = World(SMALL._replace(cleanup_policy=("compact", "delete")))
    refusal = refused(world, batch([b"a", b"b", b"c"], keys=[b"k", None, None]))
    assert refusal.error_code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in refusal.record_errors] == [1, 2]
    world.append(batch([b"a"], keys=[b"k"]))
    World().append(batch([b"a"], keys=[None]))


def test_timestamps_out_of_range() -> None:
    world = World()
    refusal = refused(world, batch([b"a", b"b"], timestamp=NOW + HOUR_MS))
    assert refusal.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in refusal.record_errors] == [1]
    world.append(batch([b"a"], timestamp=NOW + HOUR_MS))
    world.append(batch([b"a"], timestamp=1))
    world.append(batch([b"a"], timestamp=-1))
    world.log.config = SMALL._replace(message_timestamp_before_max_ms=1000)
    assert refused(world, batch(timestamp=NOW - 1001)).error_code == ErrorCode.INVALID_TIMESTAMP
    world.append(batch(timestamp=NOW - 1000))


def test_a_producers_flag_that_the_broker_sets_timestamps_is_cleared() -> None:
    by_producer = [Record(-1, NOW, b"k", b"v"), Record(-1, NOW + 7, b"k", b"v")]
    world = World()
    world.append(build_batch(by_producer, log_append_time_ms=5))
    world.log.set_high_watermark(2)
    (header,) = headers(world.log)
    assert (header.attributes, header.max_timestamp) == (0, NOW + 7), "not what the header claimed"
    assert crc_matches(content(read_batches(world.log, 0, max_bytes=1)), 0, header)
    unset = build_batch(by_producer, log_append_time_ms=-1)
    assert refused(world, unset).error_code == ErrorCode.INVALID_TIMESTAMP
    hidden = build_batch([Record(-1, NOW + 2 * HOUR_MS, b"k", b"v")], log_append_time_ms=NOW)
    assert refused(world, hidden).error_code == ErrorCode.INVALID_TIMESTAMP
    world = World(SMALL._replace(message_timestamp_type="LogAppendTime"))
    assert refused(world, build_batch(by_producer, log_append_time_ms=NOW)).error_code == ErrorCode.INVALID_TIMESTAMP


def test_log_append_time_is_set_by_the_broker() -> None:
    world = World(SMALL._replace(message_timestamp_type="LogAppendTime"))
    appended = world.append(batch([b"a", b"b"], timestamp=5, producer=1, epoch=0, sequence=0))
    assert appended.log_append_time_ms == NOW
    world.log.set_high_watermark(2)
    assert [record.timestamp for record in records(world.log)] == [NOW, NOW]
    (header,) = headers(world.log)
    assert header.is_log_append_time
    assert crc_matches(content(read_batches(world.log, 0, max_bytes=1)), 0, header)
    world.now_ms += 77
    again = world.append(batch([b"a", b"b"], timestamp=5, producer=1, epoch=0, sequence=0))
    assert again.duplicate
    assert again.log_append_time_ms == NOW


@pytest.mark.parametrize("target", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_another_compression_than_the_producers(target: str) -> None:
    world = World(SMALL._replace(compression_type=target))
    world.append(batch([b"a" * 50, b"b" * 50], codec=Codec.ZSTD, producer=9, epoch=1, sequence=3))
    world.log.set_high_watermark(2)
    (header,) = headers(world.log)
    assert header.codec is (Codec.NONE if target == "uncompressed" else Codec[target.upper()])
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 3)
    assert [record.value for record in records(world.log)] == [b"a" * 50, b"b" * 50]
    assert [record.timestamp for record in records(world.log)] == [NOW, NOW + 1]


def test_a_duplicate_is_not_written_again() -> None:
    world = World()
    for sequence in range(6):
        world.append(batch(producer=1, epoch=0, sequence=sequence, timestamp=NOW - sequence))
    size = world.log.size_bytes
    again = world.append(batch(producer=1, epoch=0, sequence=3, timestamp=NOW - 3))
    assert (again.base_offset, again.last_offset, again.duplicate, again.log_append_time_ms) == (3, 3, True, NOW - 3)
    assert world.log.size_bytes == size
    assert refused(world, batch(producer=1, epoch=0, sequence=0)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(world, batch(producer=1, epoch=0, sequence=7)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_transaction_must_be_known_before_it_begins_here() -> None:
    world = World()
    stray = batch(producer=1, epoch=0, sequence=0, transactional=True)
    assert refused(world, stray).error_code == ErrorCode.INVALID_TXN_STATE
    world.append(batch(producer=1, epoch=0, sequence=0, transactional=True), verified=True)
    world.append(batch(producer=1, epoch=0, sequence=1, transactional=True))
    world.mark(1, committed=True)
    late = batch(producer=1, epoch=0, sequence=2, transactional=True)
    assert refused(world, late).error_code == ErrorCode.INVALID_TXN_STATE


def test_a_full_disk_leaves_no_trace() -> None:
    world = World()
    world.append(batch(producer=1, epoch=0, sequence=0))
    world.memory.capacity = 0
    before = (world.log.log_end_offset, dict(world.log.producers.entries), world.log.size_bytes)
    with pytest.raises(OSError, match="no space"):
        world.append(batch(producer=1, epoch=0, sequence=1))
    assert (world.log.log_end_offset, world.log.producers.entries, world.log.size_bytes) == before
    world.memory.capacity = None
    assert world.append(batch(producer=1, epoch=0, sequence=1)).base_offset == 1


def test_rolls_by_size_time_and_age() -> None:
    world = World(SMALL._replace(segment_ms=10_000))
    for _ in range(20):
        world.append(batch([bytes(100)]))
    assert [segment.size_bytes <= 1000 for segment in world.log.segments] == [True] * len(world.log.segments)
    count = len(world.log.segments)
    assert count > 1
    world.append(batch(timestamp=NOW + 10_001))
    assert len(world.log.segments) == count + 1
    world.append(batch(timestamp=NOW + 20_001))
    assert len(world.log.segments) == count + 1
    assert world.names(".log") == [f"{segment.base_offset:020d}.log" for segment in world.log.segments]
    world.log.set_high_watermark(100)
    assert [record.offset for record in records(world.log)] == list(range(22))


def test_an_index_that_is_full_rolls_the_log() -> None:
    world = World(SMALL._replace(segment_bytes=1 << 20, index_interval_bytes=0, segment_index_bytes=64))
    for _ in range(30):
        world.append(batch())
    assert len(world.log.segments) > 3
    assert all(len(segment.offset_index) <= 8 for segment in world.log.segments)


def test_a_replicated_compacted_log_syncs_a_segment_before_it_begins_the_next() -> None:
    """Recovery cannot tell a loss from what compaction took: replicas would have other records at the same offsets."""
    world = World(SMALL._replace(cleanup_policy=("compact",)))
    world.log.begin_epoch(0)
    while len(world.log.segments) < 2:
        world.append(batch([bytes(300)]))
    first = world.log.segments[0]
    size = first.size_bytes
    world.memory.crash(1)
    world.reopen()
    assert world.log.segments[0].size_bytes == size


def test_a_failed_sync_before_a_segment_is_no_refusal() -> None:
    """The page cache may have dropped the records: whoever takes the error for a full disk would go on without them."""
    world = World(SMALL._replace(cleanup_policy=("compact",)))
    world.log.begin_epoch(0)
    world.memory.fail_syncs(1)
    for _ in range(2):
        world.append(batch([bytes(300)]))
    with pytest.raises(SyncFailed) as failed:
        world.append(batch([bytes(700)]))
    assert not isinstance(failed.value, OSError)
