"""Compaction keeps the last value of every key at its offset; readers and crashes see one state or the other."""

from __future__ import annotations

import random

import pytest

from oncelog.base.units import DAY_MS, HOUR_MS, KIB
from oncelog.records.batch import CorruptBatch
from oncelog.records.builder import append_record, assemble
from oncelog.records.compression import Codec
from oncelog.records.record import Record
from oncelog.sim.virtual.files import PowerLost
from oncelog.storage.log.read import read_batches
from oncelog.storage.log.rolling import roll
from oncelog.storage.log.truncate import truncate_fully_and_start_at
from oncelog.storage.log_config import LogConfig, StorageConfig
from oncelog.storage.maintenance.jobs import Job
from tests.unit.storage.support import NOW, SMALL, World, batch, content, headers, records

COMPACT = SMALL._replace(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)


def filled(
    world: World, seed: int = 1, count: int = 60, codec: Codec = Codec.NONE
) -> dict[bytes, tuple[int, bytes | None]]:
    """Random keys; returns the last offset and value of each."""
    entropy = random.Random(seed)
    latest: dict[bytes, tuple[int, bytes | None]] = {}
    for number in range(count):
        keys = [b"key-%d" % entropy.randrange(12) * entropy.choice([1, 5]) for _ in range(entropy.randint(1, 3))]
        values = [None if entropy.random() < 0.15 else b"%d" % number * entropy.randrange(1, 20) for _ in keys]
        appended = world.append(batch(values, keys=keys, timestamp=NOW - HOUR_MS + number, codec=codec))
        for index, (key, value) in enumerate(zip(keys, values, strict=True)):
            latest[key] = (appended.base_offset + index, value)
    roll(world.log, world.now_ms)
    world.sync()
    return latest


def compactions(world: World) -> list[Job]:
    return [job for job in world.due_jobs() if job.name == "compact"]


def compact(world: World, most: int = 10) -> int:
    """Compact until nothing is due; how many rounds."""
    rounds = 0
    while jobs := compactions(world):
        for job in jobs:
            for _ in job.run():
                pass
            job.apply()
        rounds += 1
        assert rounds <= most
    return rounds


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("segment_bytes", [600, 5000])
def test_keeps_the_latest_value_per_key_at_its_offset(codec: Codec, segment_bytes: int) -> None:
    world = World(COMPACT._replace(segment_bytes=segment_bytes))
    latest = filled(world, codec=codec)
    end = world.log.log_end_offset
    assert compact(world) == 1
    kept = {record.key: (record.offset, record.value) for record in records(world.log)}
    assert kept == latest
    assert len(records(world.log)) == len(latest)
    assert (world.log.log_start_offset, world.log.log_end_offset) == (0, end)
    assert world.log.segments[0].base_offset == 0
    assert {header.codec for header in headers(world.log)} <= {codec, Codec.NONE}
    world.directory.checkpoints()
    for clean in (False, True):
        reopened = world.reopen(clean=clean)
        reopened.set_high_watermark(end)
        assert {record.key: (record.offset, record.value) for record in records(reopened)} == latest
    assert compact(world) == 0


def test_reads_at_offsets_that_are_gone_find_what_follows() -> None:
    world = World(COMPACT)
    filled(world)
    compact(world)
    offsets = [record.offset for record in records(world.log)]
    for offset in range(world.log.log_end_offset):
        assert [record.offset for record in records(world.log, offset)] == [o for o in offsets if o >= offset]


def test_tombstones_go_after_their_time() -> None:
    world = World(COMPACT)
    latest = filled(world)
    tombstones = {key for key, (_, value) in latest.items() if value is None}
    assert tombstones
    compact(world)
    assert tombstones <= {record.key for record in records(world.log)}
    assert any(header.delete_horizon_ms == NOW + DAY_MS for header in headers(world.log))
    world.now_ms += DAY_MS
    world.append(batch([b"x"], keys=[b"new"], timestamp=world.now_ms))
    roll(world.log, world.now_ms)
    world.sync()
    compact(world)
    assert not tombstones & {record.key for record in records(world.log)}


def test_the_active_segment_unstable_and_young_records_are_left_alone() -> None:
    world = World(COMPACT)
    for _ in range(3):
        world.append(batch([b"x"], keys=[b"k"]))
    world.sync()
    assert compactions(world) == []
    roll(world.log, NOW)
    world.append(batch([b"y"], keys=[b"k"]))
    world.log.config = COMPACT._replace(min_compaction_lag_ms=1000)
    assert compactions(world) == []
    world.now_ms += 1001
    assert compact(world) == 1
    assert [record.offset for record in records(world.log)] == [2]

    unstable = World(COMPACT)
    unstable.append(batch([b"x"], keys=[b"k"], producer=1, epoch=0, sequence=0, transactional=True), verified=True)
    roll(unstable.log, NOW)
    unstable.sync()
    assert compactions(unstable) == []


def test_due_by_ratio_or_by_age() -> None:
    world = World(COMPACT._replace(min_cleanable_dirty_ratio=0.5))
    filled(world)
    assert compact(world) == 1
    world.append(batch([b"x"], keys=[b"k"], timestamp=NOW))
    roll(world.log, NOW)
    world.sync()
    assert compactions(world) == [], "too little is dirty"
    world.log.config = world.log.config._replace(max_compaction_lag_ms=DAY_MS)
    world.now_ms += DAY_MS + 1
    assert compact(world) == 1


def test_a_map_that_is_too_small_takes_several_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.storage.maintenance.batch_filter._MIN_ENTRIES", 4)
    world = World(COMPACT, storage=StorageConfig(cleaner_dedupe_buffer_bytes=0))
    latest = filled(world)
    assert compact(world, 100) > 1
    assert {record.key: (record.offset, record.value) for record in records(world.log)} == latest


def test_a_producers_last_sequence_is_kept_in_an_empty_batch() -> None:
    world = World(COMPACT)
    world.append(batch([b"x", b"y"], keys=[b"k", b"l"], producer=1, epoch=0, sequence=0))
    world.append(batch([b"x", b"y"], keys=[b"k", b"l"]))
    roll(world.log, NOW)
    world.sync()
    compact(world)
    first = headers(world.log)[0]
    assert (first.record_count, first.base_sequence, first.last_sequence, first.last_offset) == (0, 0, 1, 1)
    for name in world.names(".snapshot"):
        world.files.remove(f"t-0/{name}")
    assert world.reopen().producers.entries[1].last_sequence == 1
    assert world.append(batch([b"z"], keys=[b"k"], producer=1, epoch=0, sequence=2)).base_offset == 4


def test_aborted_data_goes_and_markers_follow_when_it_is_gone() -> None:
    world = World(COMPACT)
    world.append(batch([b"old"], keys=[b"k"]))
    for producer, key in ((1, b"k"), (2, b"m")):
        data = batch([b"new"], keys=[key], producer=producer, epoch=0, sequence=0, transactional=True)
        world.append(data, verified=True)
    world.mark(1, committed=False)
    world.mark(2, committed=True)
    world.append(batch([b"m2"], keys=[b"m"]))
    for producer in (1, 2):
        world.append(batch([b"last"], keys=[b"p%d" % producer], producer=producer, epoch=0, sequence=1))
    roll(world.log, NOW)
    world.sync()
    compact(world)
    kept = {record.key: record.value for record in records(world.log)}
    assert kept == {b"k": b"old", b"m": b"m2", b"p1": b"last", b"p2": b"last"}
    assert sum(header.is_control for header in headers(world.log)) == 2
    assert world.log.segments[0].aborted == [(1, 1, 3, 2)]
    assert read_batches(world.log, 0, max_bytes=10_000, isolation_read_committed=True).aborted == [(1, 1)]
    for expected in (2, 0):
        world.append(batch([b"more"], keys=[b"z"]))
        roll(world.log, world.now_ms)
        world.sync()
        compact(world)
        assert sum(header.is_control for header in headers(world.log)) == expected
        assert world.log.segments[0].aborted == []
        world.now_ms += DAY_MS
    assert {record.key for record in records(world.log)} == {b"k", b"m", b"p1", b"p2", b"z"}


def test_what_changed_meanwhile_is_not_overwritten() -> None:
    world = World(COMPACT)
    filled(world)
    (job,) = compactions(world)
    for _ in job.run():
        pass
    world.log.raise_log_start(world.log.segments[2].base_offset)
    world.due_jobs()
    start = world.log.log_start_offset
    before = {record.key: record.offset for record in records(world.log)}
    job.apply()
    assert {record.key: record.offset for record in records(world.log)} == before
    assert world.log.log_start_offset == start == world.log.segments[0].base_offset
    assert world.log.cleaned_offset < start, "one part was not taken over: it is still dirty"
    assert not [name for name in world.names() if name.endswith((".cleaned", ".swap"))]


def test_a_log_that_is_deleted_meanwhile() -> None:
    world = World(COMPACT)
    filled(world)
    (job,) = compactions(world)
    slices = job.run()
    next(slices)
    world.directory.delete(world.log.partition, b"\0" * 16)
    assert list(slices) == []
    job.apply()


def test_a_log_that_is_truncated_meanwhile() -> None:
    world = World(COMPACT)
    filled(world)
    (job,) = compactions(world)
    slices = job.run()
    next(slices)
    truncate_fully_and_start_at(world.log, 1000, world.now_ms)
    assert list(slices) == [], "not a failure: nothing is left to compact"
    job.apply()
    assert not [name for name in world.names() if name.endswith((".cleaned", ".swap"))]
    assert (world.log.log_start_offset, world.log.log_end_offset) == (1000, 1000)


def test_files_that_a_truncation_cuts_while_they_are_read() -> None:
    world = World(COMPACT)
    filled(world)
    (job,) = compactions(world)
    slices = job.run()
    next(slices)
    first = world.log.segments[0]
    truncate_fully_and_start_at(world.log, 1000, world.now_ms)
    first.file.truncate(10)
    assert list(slices) == []


@pytest.mark.parametrize("harm", ["cut", "header", "value"])
@pytest.mark.parametrize("index", [0, 1])
def test_a_damaged_segment_is_not_taken_for_a_shorter_one(harm: str, index: int) -> None:
    world = World(COMPACT._replace(segment_bytes=2000))
    filled(world)
    (job,) = compactions(world)
    segment = world.log.segments[index]
    path = str(world.log.directory) + f"/{segment.base_offset:020}.log"
    if harm == "cut":
        segment.file.truncate(segment.size_bytes - 1)
    else:
        world.memory.flip_bit(path, 8 * (16 if harm == "header" else segment.size_bytes - 1))
    with pytest.raises(CorruptBatch):
        list(job.run())
    job.abandon()
    assert not [name for name in world.names() if name.endswith((".cleaned", ".swap"))]


def test_a_reader_goes_on_in_the_old_file() -> None:
    world = World(COMPACT)
    filled(world)
    read = read_batches(world.log, 0, max_bytes=900)
    before = content(read)
    compact(world)
    assert content(read) == before
    world.now_ms += world.config.file_delete_delay_ms
    assert "delete" in world.run_jobs()
    assert content(read) == before
    assert not world.names(".deleted")


def test_power_lost_at_any_point_of_a_compaction() -> None:
    config = COMPACT._replace(segment_bytes=1500)
    states = set()
    for changes in range(60):
        for seed in range(3):
            world = World(config)
            latest = filled(world, count=25)
            world.directory.checkpoints()
            end = world.log.log_end_offset
            everything = {record.key: (record.offset, record.value) for record in records(world.log)}
            assert everything == latest
            world.memory.lose_power_after(changes)
            try:
                compact(world)
                world.now_ms += world.config.file_delete_delay_ms
                world.run_jobs()
            except PowerLost:
                pass
            world.memory.crash(seed)
            log = world.reopen()
            log.set_high_watermark(end)
            assert log.log_end_offset == end
            kept = records(log)
            assert {record.key: (record.offset, record.value) for record in kept} == latest, (changes, seed)
            assert [record.offset for record in kept] == sorted({record.offset for record in kept})
            states.add(len(kept))
            assert not [name for name in world.names() if name.endswith((".cleaned", ".swap", ".deleted"))]
    assert len(states) > 1, "some crashes were before, some after"


def test_compaction_leaves_large_values_whole() -> None:
    world = World(LogConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0))
    for number in range(5):
        world.append(batch([bytes(600 * KIB)], keys=[b"k%d" % (number % 2)]))
    roll(world.log, NOW)
    world.sync()
    compact(world)
    assert [(record.offset, len(record.value or b"")) for record in records(world.log)] == [
        (3, 600 * KIB),
        (4, 600 * KIB),
    ]


def test_an_aborted_value_does_not_outlive_a_committed_one_where_its_marker_is_segments_later() -> None:
    world = World(COMPACT)
    world.append(batch([b"committed"], keys=[b"k"]))
    data = batch([b"aborted"], keys=[b"k"], producer=1, epoch=0, sequence=0, transactional=True)
    world.append(data, verified=True)
    roll(world.log, NOW)
    world.mark(1, committed=False, epoch=1)
    world.sync()
    compact(world)
    assert [(record.offset, record.value) for record in records(world.log) if record.key == b"k"] == [(0, b"committed")]


def test_records_of_one_offset_are_told_apart() -> None:
    """Older versions took a batch whose records all have the offset delta 0."""
    body = bytearray()
    for key in (b"a", b"b", b"c"):
        append_record(body, Record(0, NOW, key, b"of " + key), 0, 0)
    world = World(COMPACT)
    world.append(assemble(body, (3, 2, NOW, NOW), 0, -1, 0, -1, -1, -1), internal=True)
    world.append(batch([b"later"], keys=[b"a"]))
    roll(world.log, world.now_ms)
    world.sync()
    assert compact(world) == 1
    assert [(record.key, record.value) for record in records(world.log)] == [
        (b"b", b"of b"),
        (b"c", b"of c"),
        (b"a", b"later"),
    ]
