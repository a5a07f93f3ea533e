"""A follower's append: what the leader has, byte for byte, or nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicId, TopicName, TopicPartition
from oncelog.records.batch import iter_headers
from oncelog.records.builder import append_record, assemble, build_batch, seal
from oncelog.records.compression import Codec, compress
from oncelog.records.record import Record
from oncelog.runtime.data.disk_files import DiskFiles
from oncelog.sim.virtual.file_node import MemoryFile
from oncelog.storage.errors import AppendRefused, UnexpectedOffset
from oncelog.storage.log.append_replicated import append_replicated
from oncelog.storage.log.read import read_batches, search_timestamp
from oncelog.storage.log_config import LogConfig
from oncelog.storage.log_directory import LogDirectory
from tests.unit.storage.replication import aborted, answer, batch_headers, catch_up, check_derived, fed, kept, log_bytes
from tests.unit.storage.support import NOW, SMALL, World, batch, content, found_by, records


def led(count: int = 12) -> World:
    """A leader with plain batches, transactions that commit and abort, one that is open, and three epochs."""
    world = World()
    for number in range(count):
        world.leader_epoch = number // 5
        data = batch(
            [b"x" * 40] * 2, timestamp=NOW + number, producer=1, epoch=0, sequence=2 * number, transactional=True
        )
        world.append(data, verified=True)
        world.append(batch([b"%d" % number], timestamp=NOW - number))
        if number % 3 < 2:
            world.mark(1, committed=number % 3 == 0)
    return world


def refused(world: World, data: bytes, epoch: int = 9) -> AppendRefused:
    """Append, which must be refused without a trace."""
    log = world.log
    before = (log.log_end_offset, log.size_bytes, dict(log.producers.entries), list(log.leader_epochs.entries))
    names = world.names()
    with pytest.raises(AppendRefused) as raised:
        append_replicated(log, data, now_ms=world.now_ms, leader_epoch=epoch)
    assert (log.log_end_offset, log.size_bytes, log.producers.entries, log.leader_epochs.entries) == before
    assert world.names() == names
    return raised.value


def same(leader: World, follower: World) -> None:
    """All state in memory and on the disk; of producers' batches the last, as a snapshot keeps them."""
    one, other = leader.log, follower.log
    assert log_bytes(other) == log_bytes(one)
    assert kept(other.producers) == kept(one.producers)
    assert other.producers.ongoing == one.producers.ongoing
    assert other.producers.unreplicated == one.producers.unreplicated
    assert other.leader_epochs.entries == one.leader_epochs.entries
    assert [
        (s.base_offset, s.size_bytes, s.aborted, s.max_timestamp, s.offset_index.data, s.time_index.data)
        for s in other.segments
    ] == [
        (s.base_offset, s.size_bytes, s.aborted, s.max_timestamp, s.offset_index.data, s.time_index.data)
        for s in one.segments
    ]
    assert other.snapshots.offsets == one.snapshots.offsets
    for name in leader.names(".snapshot"):
        assert follower.memory.content(f"t-0/{name}") == leader.memory.content(f"t-0/{name}")


@pytest.mark.parametrize("max_bytes", [1, 300, 700, 1 << 20])
@pytest.mark.parametrize("interval", [0, 100, 100_000])
def test_the_files_do_not_depend_on_how_answers_are_cut(max_bytes: int, interval: int) -> None:
    config = SMALL._replace(index_interval_bytes=interval)
    leader, follower = led(), World(config)
    leader.log.config = config
    expected = World(config)
    for _, header in iter_headers(data := log_bytes(leader.log)):
        at = next(p for p, h in iter_headers(data) if h.base_offset == header.base_offset)
        fed(data[at : at + header.size_bytes], expected)
    catch_up(leader.log, follower.log, max_bytes)
    same(expected, follower)
    check_derived(follower)


def test_a_follower_is_what_its_leader_is() -> None:
    leader, follower = led(), World()
    catch_up(leader.log, follower.log)
    same(leader, follower)
    assert follower.log.producers.entries == leader.log.producers.entries
    leader.log.set_high_watermark(20)
    follower.log.follow(20, 0)
    assert follower.log.last_stable_offset == leader.log.last_stable_offset
    assert aborted(follower.log)
    for clean in (False, True):
        follower.reopen(clean=clean)
        assert log_bytes(follower.log) == log_bytes(leader.log)
        assert kept(follower.log.producers) == kept(leader.log.producers)
        assert follower.log.leader_epochs.entries == leader.log.leader_epochs.entries


def test_one_answer_may_fill_many_segments_and_is_few_writes() -> None:
    leader = led()
    data = log_bytes(leader.log)
    follower, done = fed(data)
    assert done == (len(list(iter_headers(data))), len(data))
    same(leader, follower)


def test_leader_epochs_that_begin_in_a_segment_are_synced_with_its_records_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After an election a broker copies thousands of partitions in a new leader epoch: a sync of each would stop it."""
    leader = World(SMALL._replace(segment_bytes=1 << 20))
    for epoch in range(3):
        leader.leader_epoch = epoch
        leader.append(batch([b"%d" % epoch]))
    syncs: list[MemoryFile] = []
    follower = World(leader.config)
    monkeypatch.setattr(MemoryFile, "sync", syncs.append)
    fed(log_bytes(leader.log), follower)
    assert not syncs
    assert follower.log.leader_epochs.entries == leader.log.leader_epochs.entries
    follower.reopen(clean=False)
    assert follower.log.leader_epochs.entries == leader.log.leader_epochs.entries


def test_reading_up_to_the_log_end() -> None:
    follower, _ = fed(log_bytes(led().log))
    log = follower.log
    assert log.high_watermark == 0
    assert content(read_batches(log, 5, max_bytes=1000)) == b""
    assert [header.base_offset for _, header in iter_headers(answer(log, 5))][:1] == [4]
    assert found_by(search_timestamp(log, NOW + 3)) is not None
    log.follow(7, 5)
    assert (log.high_watermark, log.log_start_offset) == (7, 5)
    assert [record.offset for record in records(log)] == [5, 6]


def test_a_follower_goes_with_the_leaders_offsets_as_far_as_its_log_does() -> None:
    follower, _ = fed(log_bytes(led(2).log))
    end = follower.log.log_end_offset
    assert follower.log.follow(1000, 900)
    assert (follower.log.high_watermark, follower.log.log_start_offset) == (end, end)
    assert not follower.log.follow(3, 2)
    assert (follower.log.high_watermark, follower.log.log_start_offset) == (end, end)


def test_batches_that_do_not_follow_are_refused() -> None:
    data = log_bytes(led(2).log)
    parts = [data[p : p + h.size_bytes] for p, h in iter_headers(data)]
    follower, _ = fed(parts[0] + parts[1])
    error = refused(follower, parts[1])
    assert isinstance(error, UnexpectedOffset)
    assert (error.first_offset, error.last_offset) == (2, 2)
    assert isinstance(refused(follower, parts[2] + parts[2]), UnexpectedOffset)
    assert isinstance(refused(follower, parts[3] + parts[2]), UnexpectedOffset)


def test_one_bad_batch_refuses_all() -> None:
    data = bytearray(log_bytes(led(3).log))
    follower, _ = fed(bytes(data[:0]))
    places = [p for p, _ in iter_headers(bytes(data))]
    for place in places:
        for byte in (8, 16, 17, 23, 60):
            damaged = bytearray(data)
            damaged[place + byte] ^= 0x40
            if byte == 8:  # a length beyond the end: the rest is taken for cut off
                assert fed(bytes(damaged))[1].size_bytes == place
            else:
                assert refused(follower, bytes(damaged)).error_code == ErrorCode.CORRUPT_MESSAGE
    append_replicated(follower.log, data, now_ms=NOW, leader_epoch=0)
    check_derived(follower)


def test_an_answer_that_is_cut_off_counts_as_far_as_it_is_whole() -> None:
    data = log_bytes(led(2).log)
    ends = [p + h.size_bytes for p, h in iter_headers(data)]
    for cut in range(0, len(data), 7):
        _, done = fed(data[:cut])
        assert done.batch_count == sum(end <= cut for end in ends)


def test_batches_of_a_later_epoch_than_the_one_fetched_in_are_left_out() -> None:
    leader = led()
    data = log_bytes(leader.log)
    follower, done = fed(data, epoch=0)
    assert 0 < done.batch_count < len(list(iter_headers(data)))
    assert {header.partition_leader_epoch for header in batch_headers(follower.log)} == {0}
    assert append_replicated(
        follower.log, answer(leader.log, follower.log.log_end_offset), now_ms=NOW, leader_epoch=0
    ) == (
        0,
        0,
    )
    append_replicated(follower.log, answer(leader.log, follower.log.log_end_offset), now_ms=NOW, leader_epoch=2)
    assert follower.log.leader_epoch > 0


def test_producers_are_not_validated_again() -> None:
    """The leader knew better: its producer had expired, and an old epoch's marker was let through."""
    world = World()
    first = build_batch([Record(-1, NOW, b"k", b"v")], base_offset=0, producer_id=1, producer_epoch=5, base_sequence=7)
    second = build_batch(
        [Record(-1, NOW, b"k", b"v")], base_offset=1, producer_id=1, producer_epoch=4, base_sequence=99
    )
    fed(bytes(first + second), world)
    assert world.log.producers.entries[1].epoch == 4
    assert world.log.producers.entries[1].last_sequence == 99


def test_gaps_are_kept_and_read_over() -> None:
    data = log_bytes(led(6).log)
    parts = [data[p : p + h.size_bytes] for p, h in iter_headers(data)]
    follower, _ = fed(b"".join(parts[1::2]))
    assert log_bytes(follower.log) == b"".join(parts[1::2])
    for offset in range(follower.log.log_end_offset):
        header = next(iter_headers(answer(follower.log, offset)))[1]
        assert header.last_offset >= offset
        assert header.base_offset == min(h.base_offset for h in batch_headers(follower.log) if h.last_offset >= offset)
    for clean in (False, True):
        follower.reopen(clean=clean)
        assert log_bytes(follower.log) == b"".join(parts[1::2])


def test_a_gap_that_no_segment_can_span() -> None:
    """A log compacted for years: recovery knows of the gap and does not take it for a loss."""
    far = 5_000_000_000
    parts = [build_batch([Record(-1, NOW, b"k", b"v")], base_offset=base) for base in (10, far, far + 1, 2 * far)]
    for count in range(1, 5):
        follower, _ = fed(bytes(b"".join(parts[:count])))
        follower.sync()
        for _ in range(2):
            assert log_bytes(follower.log, 0) == b"".join(parts[:count])
            assert follower.log.log_end_offset == (11, far + 1, far + 2, 2 * far + 1)[count - 1]
            follower.reopen()


def test_an_empty_log_whose_start_lies_inside_a_batch_begins_with_that_batch() -> None:
    leader = World()
    leader.append(batch([b"a", b"b", b"c", b"d"]))
    leader.append(batch([b"e"]))
    leader.sync()
    leader.log.raise_log_start(2)
    follower = World()
    catch_up(leader.log, follower.log)
    assert (follower.log.log_start_offset, follower.log.log_end_offset) == (2, 5)
    assert log_bytes(follower.log) == log_bytes(leader.log)
    follower.sync()
    follower.directory.checkpoints()
    follower.memory.crash(1)
    follower.reopen()
    assert (follower.log.log_start_offset, follower.log.log_end_offset) == (2, 5)
    assert [record.offset for record in records(follower.log)] == [2, 3, 4]


def test_a_batch_larger_than_any_segment_takes_is_refused() -> None:
    follower = World(SMALL._replace(max_message_bytes=100))
    large = build_batch([Record(-1, NOW, b"k", bytes(1 << 20))], base_offset=0)
    assert refused(follower, bytes(large)).error_code == ErrorCode.RECORD_LIST_TOO_LARGE
    fits = build_batch([Record(-1, NOW, b"k", bytes(5000))], base_offset=0)
    fed(bytes(fits), follower)
    follower.reopen()
    assert log_bytes(follower.log) == bytes(fits)


def test_a_marker_that_is_none_is_refused() -> None:
    wrong = build_batch(
        [Record(-1, NOW, b"\0\0\0\7", b"")],
        base_offset=0,
        producer_id=1,
        producer_epoch=0,
        control=True,
        transactional=True,
    )
    seal(wrong)
    assert refused(World(), bytes(wrong)).error_code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.slow
def test_a_full_disk_leaves_batches_or_nothing() -> None:
    data = log_bytes(led(8).log)
    stops = set()
    for spare in range(0, 3 * len(data), 61):
        world = World()
        world.memory.capacity = world.memory.used + spare
        try:
            fed(data, world)
        except OSError:
            stops.add(world.log.log_end_offset)
        world.memory.capacity = None
        check_derived(world)
        rest = next((p for p, h in iter_headers(data) if h.base_offset >= world.log.log_end_offset), len(data))
        fed(data[rest:], world)
        assert log_bytes(world.log) == data
        check_derived(world)
    assert len(stops) > 3


def test_a_log_that_others_copy_needs_one_descriptor_until_its_first_sync(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    directory = LogDirectory.open(files, config_of=lambda _: LogConfig(), now_ms=NOW)
    log = directory.create(TopicPartition(TopicName("t"), 0), TopicId(b"t" * 16), LogConfig(), now_ms=NOW)
    log.begin_epoch(0)
    assert _open_below(tmp_path) == ["00000000000000000000.log"]
    to_sync, upto = log.files_to_sync()
    for file in to_sync:
        file.sync()
    log.synced(upto)
    assert _open_below(tmp_path) == ["00000000000000000000.log"]
    files.close()


def _open_below(path: Path) -> list[str]:
    realpaths = (os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd"))
    return [os.path.basename(realpath) for realpath in realpaths if realpath.startswith(f"{path}/t-0/")]


def test_followers_and_recovery_do_not_look_into_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """All records are before the base: by its header an older version may have taken the batch."""

    def fail(*_arguments: object) -> bytes:
        raise AssertionError("records are read")

    monkeypatch.setattr("oncelog.records.latest_timestamp.records_data", fail)
    body = bytearray()
    append_record(body, Record(0, NOW - 1, None, bytes(1000)), 0, -1)
    payload = compress(Codec.ZSTD, body)
    leader, follower = World(), World()
    leader.append(assemble(payload, (1, 0, NOW, NOW - 1), 0, -1, int(Codec.ZSTD), -1, -1, -1), internal=True)
    leader.sync()
    catch_up(leader.log, follower.log)
    assert follower.log.segments.active.max_timestamp == leader.log.segments.active.max_timestamp == (NOW - 1, 0)
    follower.sync()
    follower.reopen()
    assert follower.log.segments.active.max_timestamp == (NOW - 1, 0)
