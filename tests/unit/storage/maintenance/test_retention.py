"""Retention: what goes by time, by size and by log start, and that files follow later."""

from __future__ import annotations

from oncelog.base.units import DAY_MS, HOUR_MS
from tests.unit.storage.support import NOW, SMALL, World, batch, records


def filled(world: World, count: int = 30, step_ms: int = HOUR_MS) -> World:
    for number in range(count):
        world.append(batch([bytes(100)], timestamp=NOW + step_ms * number - DAY_MS * 3))
    world.sync()
    return world


def test_by_time_whole_segments_go_and_files_follow_after_the_delay() -> None:
    world = filled(World(SMALL._replace(retention_ms=2 * DAY_MS)))
    count = len(world.log.segments)
    world.run_jobs()
    assert world.log.log_start_offset == world.log.segments[0].base_offset > 0
    assert len(world.log.segments) < count
    assert all(segment.largest_timestamp() >= NOW - 2 * DAY_MS for segment in world.log.segments)
    assert world.names(".deleted")
    assert world.names(".snapshot")[0] >= f"{world.log.log_start_offset:020d}"
    world.log.config = world.log.config._replace(retention_ms=-1)
    world.now_ms += world.config.file_delete_delay_ms - 1
    assert world.run_jobs() == []
    world.now_ms += 1
    assert world.run_jobs() == ["delete"]
    assert world.names(".deleted") == []
    assert [record.offset for record in records(world.log)] == list(range(world.log.log_start_offset, 30))


def test_everything_may_be_too_old() -> None:
    world = filled(World(SMALL._replace(retention_ms=1000)), step_ms=1)
    world.run_jobs()
    assert (world.log.log_start_offset, world.log.log_end_offset, world.log.size_bytes) == (30, 30, 0)
    assert len(world.log.segments) == 1
    assert world.append(batch()).base_offset == 30
    assert world.reopen().log_start_offset == 30


def test_by_size() -> None:
    world = filled(World(SMALL._replace(retention_bytes=2000)))
    size = world.log.size_bytes
    world.run_jobs()
    assert 2000 <= world.log.size_bytes < 2000 + SMALL.segment_bytes < size


def test_nothing_goes_that_is_not_below_the_high_watermark() -> None:
    world = World(SMALL._replace(retention_ms=0, retention_bytes=0))
    for _ in range(30):
        world.append(batch([bytes(100)], timestamp=NOW - DAY_MS))
    world.run_jobs()
    assert world.log.log_start_offset == 0
    world.log.set_high_watermark(10)
    world.run_jobs()
    assert 0 < world.log.log_start_offset <= 10


def test_a_change_of_configuration_takes_effect_at_once() -> None:
    world = filled(World())
    world.run_jobs()
    assert world.log.log_start_offset == 0
    world.log.config = SMALL._replace(retention_ms=HOUR_MS)
    world.run_jobs()
    assert world.log.log_start_offset > 0


def test_delete_records_frees_whole_segments_even_of_a_compacted_log() -> None:
    world = filled(World(SMALL._replace(cleanup_policy=("compact",), min_cleanable_dirty_ratio=1.0)))
    world.log.raise_log_start(20)
    world.run_jobs()
    assert world.log.log_start_offset == 20
    assert world.log.segments[0].base_offset <= 20
    assert world.log.segments[1].base_offset > 20


def test_timestamps_nobody_set_fall_back_on_the_files_time() -> None:
    world = World(SMALL._replace(retention_ms=DAY_MS))
    for _ in range(30):
        world.append(batch([bytes(100)], timestamp=-1))
    world.sync()
    world.run_jobs()
    assert world.log.log_start_offset == 0
    world.now_ms += DAY_MS + 1
    world.run_jobs()
    assert world.log.log_start_offset == 30


def test_idle_producers_are_forgotten() -> None:
    world = World()
    world.append(batch(producer=1, epoch=0, sequence=0))
    world.now_ms += DAY_MS
    world.log.expire_producers(world.now_ms)
    assert not world.log.producers.entries
