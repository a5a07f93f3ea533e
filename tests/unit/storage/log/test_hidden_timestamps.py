"""Batches that an older version took with a largest timestamp that cannot be right: nothing is lost for it."""

from __future__ import annotations

import pytest

from oncelog.base.units import DAY_MS, HOUR_MS
from oncelog.records.batch import MAX_TIMESTAMP_POSITION
from oncelog.records.builder import build_batch, seal
from oncelog.records.compression import Codec
from oncelog.records.record import Record
from oncelog.storage.log.read import TimestampOffset, search_max_timestamp, search_timestamp
from oncelog.storage.log.rolling import roll
from tests.unit.storage.support import NOW, SMALL, World, batch, found_by, records

KEEPS_A_DAY = SMALL._replace(retention_ms=DAY_MS)


def hidden(timestamp: int, claimed: int = -1, codec: Codec = Codec.NONE, count: int = 2) -> bytearray:
    """A batch of records a millisecond apart whose header says ``claimed``."""
    data = batch([bytes(50)] * count, timestamp=timestamp, codec=codec)
    data[MAX_TIMESTAMP_POSITION : MAX_TIMESTAMP_POSITION + 8] = claimed.to_bytes(8, "big", signed=True)
    seal(data)
    return data


def old_log(world: World, *batches: bytearray) -> World:
    """A log that holds these batches as they came, opened again."""
    for data in batches:
        world.append(data, internal=True)
    world.sync()
    world.reopen(clean=True)
    world.log.set_high_watermark(world.log.log_end_offset)
    return world


def offset_at(world: World, timestamp: int) -> int:
    result = found_by(search_timestamp(world.log, timestamp))
    return -1 if result is None else result.offset


@pytest.mark.parametrize("claimed", [-1, 0, NOW - 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("clean", [True, False])
def test_searches_by_time_find_hidden_records(claimed: int, codec: Codec, clean: bool) -> None:
    world = old_log(World(), *(hidden(NOW + 100 * number, claimed, codec) for number in range(20)))
    world.now_ms += 20 * 100
    for name in world.names(".log"):
        world.memory.set_modified_ms(f"t-0/{name}", world.now_ms)
    if not clean:
        world.directory.close()
        world.files.remove(".kafka_cleanshutdown")
        world.reopen()
        world.log.set_high_watermark(40)
    assert offset_at(world, 0) == 0
    for number in range(20):
        assert offset_at(world, NOW + 100 * number) == 2 * number
        assert offset_at(world, NOW + 100 * number + 1) == 2 * number + 1
    assert offset_at(world, NOW + 100 * 19 + 2) == -1


def test_the_latest_timestamp_is_one_of_a_record() -> None:
    world = old_log(World(), batch(timestamp=NOW - HOUR_MS), hidden(NOW), batch(timestamp=NOW - HOUR_MS + 1))
    assert found_by(search_max_timestamp(world.log)) == TimestampOffset(NOW + 1, 2, 0)


def test_a_hidden_batch_between_others_is_found() -> None:
    world = old_log(World(), batch(timestamp=NOW + 100), hidden(NOW + 200), batch(timestamp=NOW + 300))
    assert [offset_at(world, NOW + at) for at in (50, 150, 201, 250, 301)] == [0, 1, 2, 3, -1]


def test_retention_does_not_take_hidden_records_for_old() -> None:
    world = old_log(World(KEEPS_A_DAY), *(hidden(NOW + number, claimed=0) for number in range(20)))
    count = len(world.log.segments)
    assert count > 3
    for _ in range(count):
        assert set(world.run_jobs()) <= {"check-timestamps"}
    assert len(records(world.log)) == 40
    world.now_ms += DAY_MS + 1000
    world.run_jobs()
    assert world.log.log_start_offset == 40, "a day later they are old"


def test_segments_that_are_old_and_were_written_lately_go_after_one_check() -> None:
    world = World(KEEPS_A_DAY)
    for number in range(20):
        world.append(batch([bytes(100)], timestamp=NOW - 3 * DAY_MS + number))
    world.sync()
    world.reopen(clean=True)
    world.log.set_high_watermark(20)
    seen = [name for _ in range(2 * len(world.log.segments)) for name in world.run_jobs()]
    assert set(seen) == {"check-timestamps"}
    assert world.log.log_start_offset == 20


def test_hidden_records_are_too_young_for_compaction() -> None:
    config = SMALL._replace(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, min_compaction_lag_ms=HOUR_MS)
    world = old_log(World(config), *(hidden(NOW + number) for number in range(20)))
    assert world.run_jobs() == []
    world.now_ms += 2 * HOUR_MS
    assert world.run_jobs() == ["compact"]


def test_compacted_batches_keep_the_bytes_of_header_names() -> None:
    config = SMALL._replace(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    world = World(config)
    records_ = [Record(-1, NOW, key, bytes(60), (("name", b"x"),)) for key in (b"a", b"b", b"a")]
    data = build_batch(records_, codec=Codec.NONE)
    odd = bytearray(bytes(data).replace(b"name", b"n\xff\xfee"))
    seal(odd)
    for _ in range(5):
        world.append(bytearray(odd))
    roll(world.log, NOW)
    world.sync()
    assert world.run_jobs() == ["compact"]
    left = records(world.log)
    assert [record.key for record in left] == [b"b", b"a"]
    assert left[0].headers == (("n��e", b"x"),)
    stored = b"".join(segment.file.read(0, segment.size_bytes) for segment in world.log.segments)
    assert stored.count(b"n\xff\xfee") == 2
