"""After a crash: what is sound is kept, the rest is cut, and everything beside the segments is rebuilt."""

from __future__ import annotations

import struct

import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import DAY_MS
from oncelog.core.producers.entry import ProducerEntry
from oncelog.sim.virtual.files import PowerLost
from oncelog.storage.checkpoints import Sync, read_leader_epochs, write_leader_epochs
from oncelog.storage.file_names import CLEAN_SHUTDOWN, is_marked_directory
from oncelog.storage.leader_epochs import EpochStart
from oncelog.storage.log.partition_log import PartitionLog
from oncelog.storage.log.read import read_batches, search_timestamp
from oncelog.storage.log_config import StorageConfig
from oncelog.storage.log_directory import LogDirectory
from tests.unit.storage.support import (
    NOW,
    PARTITION,
    SMALL,
    TOPIC_ID,
    World,
    batch,
    content,
    found_by,
    headers,
    records,
)

LAST = "t-0/{:020d}.log"


def filled(count: int = 20, **options: int) -> World:
    world = World()
    for number in range(count):
        world.append(batch([b"%d" % number] * 3, timestamp=NOW + number, producer=1, epoch=0, sequence=3 * number))
    return world


def read_all(world: World) -> list[int]:
    world.log.set_high_watermark(world.log.log_end_offset)
    return [record.offset for record in records(world.log)]


def test_everything_in_the_page_cache_survives_a_killed_process() -> None:
    world = filled()
    before = world.log
    log = world.reopen()
    assert not world.directory.was_clean
    assert (log.log_end_offset, log.topic_id, log.durable_offset) == (60, TOPIC_ID, 0)
    assert read_all(world) == list(range(60))
    assert log.producers.entries[1].last_sequence == before.producers.entries[1].last_sequence
    assert log.size_bytes == before.size_bytes
    assert [s.base_offset for s in log.segments] == [s.base_offset for s in before.segments]
    assert world.append(batch(producer=1, epoch=0, sequence=60)).base_offset == 60


def test_a_clean_shutdown_needs_no_recovery() -> None:
    world = filled()
    world.log.set_high_watermark(45)
    log = world.reopen(clean=True)
    assert world.directory.was_clean
    assert (log.log_end_offset, log.durable_offset) == (60, 60)
    assert log.high_watermark == 45, "what is on this disk may not be on others'"
    assert log.producers.entries[1].last_sequence == 59
    assert CLEAN_SHUTDOWN not in world.files.list("")
    assert world.append(batch(producer=1, epoch=0, sequence=60)).base_offset == 60
    assert world.reopen().log_end_offset == 61


def test_cut_at_every_byte_of_the_last_batch() -> None:
    world = World()
    for number in range(3):
        world.append(batch([b"x"], timestamp=NOW + number))
    path = LAST.format(0)
    whole = world.memory.content(path)
    for cut in range(len(whole) - len(batch([b"x"])), len(whole)):
        for rest in (b"", bytes(len(whole) - cut), b"\xff" * 7):
            if whole[:cut] + rest == whole:
                continue
            world.memory.overwrite(path, whole[:cut] + rest)
            log = world.reopen()
            assert log.log_end_offset == 2, (cut, rest)
            assert world.files.size(path) == 2 * len(batch([b"x"]))
    world.memory.overwrite(path, whole)
    assert world.reopen().log_end_offset == 3


def test_any_flipped_bit_in_the_last_batch_cuts_it_off() -> None:
    world = World()
    for number in range(2):
        world.append(batch([b"x"], timestamp=NOW + number))
    path = LAST.format(0)
    whole = world.memory.content(path)
    size = len(batch([b"x"]))
    harmless = set(range(12, 16))  # the leader epoch is not covered by the checksum
    for byte in range(size, 2 * size):
        world.memory.overwrite(path, whole)
        world.memory.flip_bit(path, 8 * byte + 3)
        log = world.reopen()
        if byte - size in harmless:
            assert log.log_end_offset == 2
        else:
            read_all(world)
            assert log.log_end_offset == 1 or headers(log)[-1].base_offset > 1, byte


def test_a_log_says_that_it_lost_what_was_durable() -> None:
    """A batch that was on the disk by the recovery point is damaged: no power cut leaves a log that ends before it."""
    world = filled(4)
    world.sync()
    world.directory.checkpoints()
    world.append(batch())
    path = LAST.format(world.log.segments.active.base_offset)
    world.memory.flip_bit(path, 8 * (world.files.size(path) or 0) - 3)
    assert world.reopen().log_end_offset == 12
    assert world.directory.lost_from == {}, "the damaged one was not on the disk"
    world.memory.flip_bit(LAST.format(0), 8 * 70)
    assert world.reopen().log_end_offset == 0
    assert world.directory.lost_from == {PARTITION: 0}
    assert world.reopen().log_end_offset == 0
    assert world.directory.lost_from == {PARTITION: 0}, "until the next checkpoint"
    world.directory.checkpoints()
    world.reopen()
    assert world.directory.lost_from == {}


def test_a_log_whose_directory_is_missing_has_lost_what_was_durable() -> None:
    world = filled(4)
    world.sync()
    world.directory.close()
    world.memory.remove(str(PARTITION))
    directory = LogDirectory.open(world.files, config_of=lambda _: SMALL, now_ms=NOW)
    assert (directory.logs, directory.lost_from, directory.lost()) == ({}, {PARTITION: 0}, (PARTITION,))
    directory.checkpoints()
    assert LogDirectory.open(world.files, config_of=lambda _: SMALL, now_ms=NOW).lost() == ()


def test_a_missing_log_without_records_has_lost_nothing() -> None:
    world = World()
    world.directory.close()
    world.memory.remove(str(PARTITION))
    assert LogDirectory.open(world.files, config_of=lambda _: SMALL, now_ms=NOW).lost() == ()


def test_a_log_made_anew_has_no_checkpoints_of_the_one_before() -> None:
    world = filled(4)
    world.log.set_high_watermark(12)
    world.sync()
    world.directory.checkpoints()
    world.directory.delete(PARTITION, bytes(16))
    log = world.directory.create(PARTITION, TOPIC_ID, SMALL, now_ms=NOW)
    assert log.log_end_offset == 0
    reopened = world.reopen()
    assert (reopened.log_end_offset, reopened.high_watermark, world.directory.lost_from) == (0, 0, {})


def test_segments_after_a_bad_one_are_removed() -> None:
    world = filled(40)
    bases = [segment.base_offset for segment in world.log.segments]
    assert len(bases) >= 3
    world.memory.flip_bit(LAST.format(bases[1]), 8 * 70)
    log = world.reopen()
    assert log.log_end_offset == bases[1]
    assert [segment.base_offset for segment in log.segments] == bases[:2]
    assert world.names(".log") == [f"{base:020d}.log" for base in bases[:2]]
    assert log.producers.entries[1].last_sequence == bases[1] - 1


@pytest.mark.parametrize("only_process", [True, False])
def test_a_recovery_that_dies_half_way_leaves_no_gap(only_process: bool) -> None:
    """Durable records are damaged, and segments follow: whatever a recovery has done by its death, the next one finds
    the end of the log where the damage was, and says that the rest is lost."""
    deaths = 0
    while True:
        world, damaged = _damaged_before_the_last_segments()
        world.memory.lose_power_after(deaths, only_process=only_process)
        try:
            world.reopen()
            break
        except PowerLost:
            if only_process:
                world.memory.process_died()
            else:
                world.memory.crash(deaths)
        log = world.reopen()
        assert (log.log_end_offset, world.directory.lost_from) == (damaged, {PARTITION: damaged}), deaths
        assert [segment.base_offset for segment in log.segments] == [0, damaged], deaths
        deaths += 1
    assert deaths > 5


def _damaged_before_the_last_segments() -> tuple[World, int]:
    """A log on the disk, two segments of it after the one that holds the recovery point, whose first batch is damaged;
    and where that is."""
    world = filled(12)
    world.sync()
    world.directory.checkpoints()
    damaged = world.log.segments.active.base_offset
    assert 0 < damaged < world.log.log_end_offset
    while world.log.segments[-2].base_offset <= damaged:
        world.append(batch([b"later"] * 3))
    for file in world.log.files_to_sync()[0]:
        file.sync()
    world.files.sync_directory(str(PARTITION))
    world.memory.flip_bit(LAST.format(damaged), 8 * 70)
    return world, damaged


def test_what_lies_before_the_recovery_point_is_not_read_again() -> None:
    world = filled()
    world.sync()
    world.directory.checkpoints()
    first = world.log.segments[0]
    world.memory.flip_bit(LAST.format(first.base_offset), 8 * 70)
    log = world.reopen()
    assert log.log_end_offset == log.durable_offset == 60


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["remove", "garbage", "truncate", "zeros"])
@pytest.mark.parametrize(
    "suffix", [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint", "partition.metadata", "-checkpoint"]
)
def test_damaged_files_beside_the_segments_are_rebuilt(clean: bool, damage: str, suffix: str) -> None:
    world = filled()
    world.sync()
    if clean:
        world.directory.close()
    else:
        world.directory.checkpoints()
    paths = [f"t-0/{name}" for name in world.names(suffix)]
    if suffix == "-checkpoint":
        paths += [name for name in world.files.list("") if name.endswith(suffix)]
    assert paths
    for path in paths:
        old = world.memory.content(path)
        if damage == "remove":
            world.files.remove(path)
        elif damage == "garbage":
            world.memory.overwrite(path, bytes(value ^ 0x5A for value in old) + b"#")
        elif damage == "truncate":
            world.memory.overwrite(path, old[: len(old) // 2])
        else:
            world.memory.overwrite(path, bytes(len(old)))
    log = world.reopen()
    assert log.log_end_offset == 60
    assert read_all(world) == list(range(60))
    result = found_by(search_timestamp(log, NOW + 7))
    assert result is not None
    assert result.offset == 17
    assert log.producers.entries[1].last_sequence == 59
    assert log.leader_epoch == 0
    for _ in range(10):
        world.run_jobs()
    assert not any(segment.needs_index for segment in log.segments)
    assert len(log.segments[0].offset_index) > 0
    assert world.append(batch(producer=1, epoch=0, sequence=60)).base_offset == 60


@pytest.mark.parametrize("bit", range(16))
def test_a_flipped_bit_in_the_version_of_a_snapshot_is_damage(bit: int) -> None:
    world = filled()
    world.sync()
    world.directory.close()
    world.memory.flip_bit(f"t-0/{world.names('.snapshot')[-1]}", bit)
    assert world.reopen().producers.entries[1].last_sequence == 59


@pytest.mark.parametrize("entry", [(9, 364), (17, 364), (14, 200), (14, 363)], ids=str)
def test_an_index_that_rises_and_lies_costs_time_alone(entry: tuple[int, int]) -> None:
    """Bits that flip need not show: (14, 364) is right, the batch there ends with 14 and begins with 12."""
    world = filled()
    world.sync()
    world.directory.close()
    index = f"t-0/{world.names('.index')[0]}"
    entries = list(struct.iter_unpack(">ii", world.memory.content(index)))
    assert entries[:3] == [(8, 182), (14, 364), (20, 546)]
    entries[1] = entry
    world.memory.overwrite(index, b"".join(struct.pack(">ii", *entry) for entry in entries))
    log = world.reopen()
    first = log.segments[0]
    assert _damaged(log) == []
    for position in (183, 200, 364):
        bound = first.bound_from(position)
        assert bound is None or bound >= 14
    for offset in range(log.segments[1].base_offset):
        match = first.find(offset)
        assert match is not None
        assert match[1].base_offset <= offset <= match[1].last_offset
    assert _damaged(log) == [0]
    assert read_all(world) == list(range(60))
    for _ in range(10):
        world.run_jobs()
    assert _damaged(log) == []
    assert first.offset_index.entry(1) == (14, 364)


def _damaged(log: PartitionLog) -> list[int]:
    """Base offsets of segments whose index waits to be made anew."""
    return [segment.base_offset for segment in log.segments if segment.needs_index]


def _kept(entry: ProducerEntry) -> ProducerEntry:
    """The part that a snapshot keeps: the last batch, with the producer's last timestamp."""
    return entry._replace(batches=tuple(batch._replace(timestamp=entry.last_timestamp) for batch in entry.batches[-1:]))


def test_open_transactions_and_aborted_ones_are_rebuilt() -> None:
    world = World()
    for number in range(4):
        for producer in (1, 2):
            data = batch([b"x" * 50] * 2, producer=producer, epoch=0, sequence=2 * number, transactional=True)
            world.append(data, verified=True)
        world.mark(1, committed=number % 2 == 0)
        if number < 3:
            world.mark(2, committed=False)
    world.log.set_high_watermark(world.log.log_end_offset)
    expected = [segment.aborted for segment in world.log.segments]
    entries = [_kept(entry) for entry in world.log.producers.entries.values()]
    assert world.log.last_stable_offset == 20
    for clean in (False, True, False):
        log = world.reopen(clean=clean)
        log.set_high_watermark(log.log_end_offset)
        assert [segment.aborted for segment in log.segments] == expected
        assert [_kept(entry) for entry in log.producers.entries.values()] == entries
        assert log.last_stable_offset == 20
    path = next(f"t-0/{name}" for name in world.names(".txnindex"))
    world.directory.close()
    world.memory.overwrite(path, b"damaged")
    log = world.reopen()
    assert [segment.aborted for segment in log.segments] == expected
    world.directory.close()
    # All indexes are lost: a lost offset index tells that the transaction index may be lost, too.
    for name in world.names("index"):
        world.files.remove(f"t-0/{name}")
    log = world.reopen()
    assert [segment.aborted for segment in log.segments] == expected


def test_expired_producers_are_not_loaded() -> None:
    world = filled(3)
    world.directory.close()
    world.now_ms += DAY_MS
    log = world.reopen()
    assert set(log.producers.entries) == {1}, "its last record is 2 ms younger"
    world.directory.close()
    world.now_ms += 10
    assert not world.reopen().producers.entries
    world.storage = StorageConfig(producer_id_expiration_ms=10 * DAY_MS)


def test_the_log_start_offset_is_kept_and_may_lie_inside_a_segment() -> None:
    world = filled()
    world.sync()
    world.log.raise_log_start(31)
    world.directory.checkpoints()
    for clean in (False, True):
        log = world.reopen(clean=clean)
        assert log.log_start_offset == 31
        assert read_all(world) == list(range(31, 60))


def test_a_log_that_lost_everything_begins_at_its_start_offset() -> None:
    world = filled()
    world.sync()
    world.log.raise_log_start(60)
    world.directory.checkpoints()
    for name in world.names():
        if name.endswith((".log", ".index", ".timeindex", ".snapshot")):
            world.files.remove(f"t-0/{name}")
    log = world.reopen()
    assert (log.log_start_offset, log.log_end_offset) == (60, 60)
    assert world.append(batch()).base_offset == 60


def test_strangers_in_the_directory() -> None:
    world = filled(2)
    memory = world.memory
    memory.make_directory("not a partition")
    memory.make_directory("u-0.0123456789abcdef0123456789abcdef-delete")
    memory.make_directory("u-1.0123456789abcdef0123456789abcdef-stray")
    memory.open("u-0.0123456789abcdef0123456789abcdef-delete/x", create=True)
    memory.open("v-3", create=True)
    memory.open("meta.properties.tmp", create=True)
    memory.open("t-0/00000000000000000077.index", create=True)
    memory.open("t-0/00000000000000000077.log.deleted", create=True)
    memory.open("t-0/notes.txt", create=True)
    world.reopen()
    assert list(world.directory.logs) == [PARTITION]
    assert world.run_jobs() == ["delete"]
    assert "u-0.0123456789abcdef0123456789abcdef-delete" not in memory.list("")
    assert "u-1.0123456789abcdef0123456789abcdef-stray" in memory.list("")
    assert "00000000000000000077.index" not in world.names()
    assert "notes.txt" in world.names()


def test_deleting_and_setting_aside() -> None:
    world = filled(3)
    other = TopicPartition(TopicName("other"), 4)
    world.directory.create(other, TOPIC_ID, SMALL, now_ms=NOW)
    world.log.set_high_watermark(9)
    held = read_batches(world.log, 0, max_bytes=10_000)
    data = content(held)
    job = world.directory.delete(PARTITION, b"\1" * 16)
    world.directory.set_aside(other, b"\2" * 16)
    assert world.directory.logs == {}
    assert world.files.list("") == [f"other-4.{'02' * 16}-stray", f"t-0.{'01' * 16}-delete"]
    again = world.directory.create(PARTITION, TOPIC_ID, SMALL, now_ms=NOW)
    for _ in job.run():
        pass
    job.apply()
    assert content(held) == data
    assert again.log_end_offset == 0
    assert world.names(".log") == [f"{0:020d}.log"]


@pytest.mark.parametrize("name", ["x" * 249, "y" * 213, "z"])
def test_the_longest_name_of_a_topic_leaves_room_for_what_is_put_behind_it(name: str) -> None:
    world = filled(1)
    deleted, stray = (TopicPartition(TopicName(name), index) for index in (0, 99_999))
    for partition in (deleted, stray):
        world.directory.create(partition, TOPIC_ID, SMALL, now_ms=NOW)
    world.directory.delete(deleted, b"\1" * 16)
    world.directory.set_aside(stray, b"\2" * 16)
    put_aside = [item for item in world.files.list("") if item.startswith(name[0])]
    assert {item.lstrip(name[0]) for item in put_aside} == {f"-0.{'01' * 16}-delete", f"-99999.{'02' * 16}-stray"}
    assert all(is_marked_directory(item) and len(item) <= 255 for item in put_aside)


def test_a_failed_sync_is_raised() -> None:
    world = filled(1)
    files, _ = world.log.files_to_sync()
    world.memory.fail_syncs()
    with pytest.raises(OSError, match="input/output"):
        files[0].sync()
    assert world.log.durable_offset == 0


def test_segments_without_room_for_their_index_are_still_found() -> None:
    world = World(SMALL._replace(index_interval_bytes=1 << 30))
    for number in range(50):
        world.append(batch([b"x"], timestamp=NOW + number))
    assert read_all(world) == list(range(50))
    for clean in (True, False):
        world.reopen(clean=clean)
        assert read_all(world) == list(range(50))


def test_batches_are_believed_where_the_file_of_leader_epochs_contradicts_them() -> None:
    """A power cut keeps records that replaced truncated ones, and loses the epochs that were written with them."""
    world = World()
    for epoch in (0, 0, 2, 3):
        world.leader_epoch = epoch
        world.append(batch())
    world.sync()
    write_leader_epochs(world.files, str(PARTITION), [EpochStart(0, 0), EpochStart(1, 1)], Sync.ALL)
    expected = [EpochStart(0, 0), EpochStart(2, 2), EpochStart(3, 3)]
    assert world.reopen().leader_epochs.entries == expected
    assert read_leader_epochs(world.files, str(PARTITION)) == expected


@pytest.mark.parametrize("seed", range(6))
def test_the_topic_id_of_a_replicated_log_is_as_durable_as_its_records(seed: int) -> None:
    world = World()
    world.log.begin_epoch(0)
    world.append(batch())
    world.sync()
    world.memory.crash(seed)
    log = world.reopen()
    assert (log.log_end_offset, log.topic_id) == (1, TOPIC_ID)
