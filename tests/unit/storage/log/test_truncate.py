"""Truncation: what is left is as if the rest had never been appended, whatever happens in the middle of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from oncelog.records.batch import iter_headers
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.sim.checkers.disk.observer import check_disk
from oncelog.sim.virtual.files import PowerLost
from oncelog.storage.log.read import read_batches
from oncelog.storage.log.rolling import roll
from oncelog.storage.log.truncate import truncate_fully_and_start_at, truncate_to
from tests.unit.storage.log.test_append_replicated import led, same
from tests.unit.storage.replication import aborted, catch_up, check_derived, fed, fetch_once, kept, log_bytes
from tests.unit.storage.support import NOW, PARTITION, SMALL, TOPIC_ID, World, batch, run_now

LEADER = led()
DATA = log_bytes(LEADER.log)
BOUNDS = [header.base_offset for _, header in iter_headers(DATA)]
END = LEADER.log.log_end_offset
PART = BOUNDS[9]
BASES = [segment.base_offset for segment in LEADER.log.segments]


def before(offset: int) -> bytes:
    """The batches that end at ``offset`` or before."""
    return b"".join(DATA[p : p + h.size_bytes] for p, h in iter_headers(DATA) if h.next_offset <= offset)


def follower(*, synced: int = 0) -> World:
    """A follower that has everything, with the first batches on disk and checkpointed."""
    world, _ = fed(before(synced)) if synced else (World(), None)
    if synced:
        world.sync()
        world.directory.checkpoints()
    catch_up(LEADER.log, world.log)
    world.log.high_watermark = type(world.log.high_watermark)(min(world.log.high_watermark, synced))
    return world


@pytest.mark.parametrize("offset", BOUNDS)
def test_as_if_the_rest_had_never_been_appended(offset: int) -> None:
    world = follower()
    fresh, _ = fed(before(offset))
    assert truncate_to(world.log, offset, NOW)
    assert world.log.log_end_offset == offset
    if offset in BASES and offset:  # the segment is there already, and empty
        roll(fresh.log, NOW)
    same(world, fresh)
    check_derived(world)
    catch_up(LEADER.log, world.log)
    assert log_bytes(world.log) == DATA
    check_derived(world)
    for clean in (False, True):
        world.reopen(clean=clean)
        assert log_bytes(world.log) == DATA
        assert kept(world.log.producers) == kept(LEADER.log.producers)
        assert aborted(world.log) == aborted(LEADER.log)
        assert world.log.leader_epochs.entries == LEADER.log.leader_epochs.entries


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("offset", BOUNDS[::3])
def test_a_log_that_was_opened_again_is_cut_the_same(offset: int, clean: bool) -> None:
    world = follower()
    world.reopen(clean=clean)
    truncate_to(world.log, offset, NOW)
    assert log_bytes(world.log) == before(offset)
    check_derived(world)
    world.reopen(clean=clean)
    assert log_bytes(world.log) == before(offset)
    check_derived(world)


def test_an_offset_inside_a_batch_takes_the_whole_batch() -> None:
    world = follower()
    assert truncate_to(world.log, BOUNDS[3] + 1, NOW)
    assert BOUNDS[4] > BOUNDS[3] + 1
    assert world.log.log_end_offset == BOUNDS[3]
    check_derived(world)


def test_an_offset_at_the_end_or_after_it_forgets_an_epoch_without_records() -> None:
    world = follower()
    entries = list(world.log.leader_epochs.entries)
    world.log.begin_epoch(7)
    assert world.log.leader_epoch == 7
    assert not truncate_to(world.log, END + 5, NOW)
    assert (world.log.leader_epochs.entries, world.log.log_end_offset) == (entries, END)
    assert not truncate_to(world.log, END, NOW)
    assert world.memory.content("t-0/leader-epoch-checkpoint").decode().split()[2:] == [
        str(value) for entry in entries for value in entry
    ]


def test_an_epoch_begins_before_its_first_record_and_is_found_again_with_it() -> None:
    world = follower()
    world.sync()
    world.log.begin_epoch(7)
    assert world.log.epoch_end_offset(7, world.log.leader_epoch) == (7, END)
    assert world.log.epoch_end_offset(6, world.log.leader_epoch) == (2, END)
    world.leader_epoch = 7
    world.append(batch())
    world.sync()
    world.memory.crash(3)
    world.reopen()
    assert world.log.epoch_end_offset(2, world.log.leader_epoch) == (2, END)
    assert world.log.leader_epoch == 7


def test_an_epoch_without_records_is_forgotten_in_a_crash_and_parts_no_logs() -> None:
    """A follower's records of other epochs are still cut where this log's next epoch began."""
    world = follower()
    world.sync()
    world.log.begin_epoch(5)
    world.memory.crash(3)
    world.reopen()
    assert world.log.leader_epoch == 2
    world.log.begin_epoch(7)
    assert world.log.epoch_end_offset(6, 7) == (2, END)


def test_before_the_log_start_offset() -> None:
    world = follower()
    world.sync()
    world.log.raise_log_start(20)
    world.directory.checkpoints()
    truncate_to(world.log, PART, NOW)
    log = world.log
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset, log.durable_offset) == (PART,) * 4
    catch_up(LEADER.log, log)
    world.sync()
    world.memory.crash(5)
    world.reopen()
    assert (world.log.log_start_offset, world.log.log_end_offset) == (PART, END)


def test_before_the_first_segment() -> None:
    world = follower()
    world.sync()
    world.log.raise_log_start(20)
    world.run_jobs()
    assert world.log.segments[0].base_offset > 3
    assert truncate_to(world.log, 3, NOW)
    assert (world.log.log_start_offset, world.log.log_end_offset) == (3, 3)


@pytest.mark.parametrize("offset", [0, 3, 17, END, 1000])
def test_beginning_anew(offset: int) -> None:
    world = follower(synced=20)
    truncate_fully_and_start_at(world.log, offset, NOW)
    log = world.log
    assert log.log_start_offset == log.log_end_offset == log.high_watermark == log.durable_offset == offset
    assert (log.producers.entries, log.producers.ongoing, log.snapshots.offsets) == ({}, {}, [])
    assert (log.leader_epochs.entries, log.size_bytes, aborted(log)) == ([], 0, [])
    assert not world.directory.transactions.partitions
    for clean in (False, True):
        world.reopen(clean=clean)
        assert (world.log.log_start_offset, world.log.log_end_offset) == (offset, offset)
        assert not world.log.producers.entries
    data = build_batch([Record(-1, NOW, b"k", b"v")], base_offset=offset)
    fed(bytes(data), world)
    world.sync()
    world.memory.crash(offset)
    world.reopen()
    assert (world.log.log_start_offset, world.log.log_end_offset) == (offset, offset + 1)
    assert log_bytes(world.log) == bytes(data)


def test_a_sync_that_began_before_does_not_count_for_what_was_written_since() -> None:
    world = follower(synced=10)
    files, upto = world.log.files_to_sync()
    truncate_to(world.log, 22, NOW)
    catch_up(LEADER.log, world.log)
    for file in files:
        with suppress(OSError):
            file.sync()
    world.log.synced(upto)
    assert world.log.durable_offset == 22
    world.sync()
    assert world.log.durable_offset == END


def test_a_decided_transaction_stays_unstable_until_its_marker_is_replicated() -> None:
    world = follower()
    marker = next(entry.last_offset for segment in world.log.segments for entry in segment.aborted)
    first = aborted(world.log)[0].first_offset  # type: ignore[attr-defined]  # an AbortedTransaction
    world.log.set_high_watermark(first + 1)
    truncate_to(world.log, END - 1, NOW)
    assert world.log.last_stable_offset == first
    world.log.set_high_watermark(marker + 1)
    assert world.log.last_stable_offset > first


def test_a_transaction_whose_marker_was_cut_is_open_again() -> None:
    world = World()
    world.append(
        batch([b"x"], producer=1, epoch=0, sequence=0, transactional=True), verified=True, transactional_id="t"
    )
    marker = world.mark(1, committed=False)
    world.append(batch([b"y"], producer=2, epoch=0, sequence=0, transactional=True), verified=True)
    opened = world.directory.transactions
    other = opened.get(PARTITION, 2)
    assert opened.get(PARTITION, 1) is None
    assert other is not None
    truncate_to(world.log, marker.base_offset, NOW)
    again = opened.get(PARTITION, 1)
    assert again is not None
    assert (again.start_offset, again.ended, other.ended, opened.get(PARTITION, 2)) == (0, False, True, None)
    assert aborted(world.log) == []
    world.mark(1, committed=True)
    check_derived(world)


def test_jobs_under_way_are_not_taken_over() -> None:
    """A compaction and a rebuilt index of a segment that has been cut since say what is no longer true."""
    world = World(SMALL._replace(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.01))
    for number in range(40):
        world.append(batch([b"%d" % number + bytes(90)], keys=[b"k%d" % (number % 3)]))
    roll(world.log, NOW)
    world.sync()
    (job,) = world.due_jobs()
    assert job.name == "compact"
    for _ in job.run():
        pass
    data = log_bytes(world.log)
    truncate_to(world.log, 7, NOW)
    job.apply()
    assert log_bytes(world.log) == b"".join(
        data[p : p + h.size_bytes] for p, h in iter_headers(data) if h.base_offset < 7
    )
    check_derived(world)
    assert world.log.cleaned_offset <= 7


def test_readers_of_what_leaves_the_log_read_on() -> None:
    world = follower()
    world.log.set_high_watermark(END)
    last = read_batches(world.log, BASES[-1], max_bytes=1 << 20).chunks[0]
    data = last.file.read(last.position, last.size_bytes)
    truncate_to(world.log, BASES[-2] - 1, NOW)
    assert last.file.read(last.position, last.size_bytes) == data
    world.now_ms += SMALL.file_delete_delay_ms
    assert world.names(".log.deleted")
    for job in world.due_jobs():
        run_now(job)
    assert not world.names(".deleted")
    check_derived(world)


# Power lost, or the process killed, between any two changes of the disk


def cut(world: World, offset: int) -> None:
    truncate_to(world.log, offset, NOW)


def begin_anew(world: World, offset: int) -> None:
    truncate_fully_and_start_at(world.log, offset, NOW)


def crash_everywhere(
    truncate: Callable[[World], None], synced: int, check: Callable[[World], None], *, only_process: bool
) -> int:
    """Truncate, with the end of the world after every number of changes; how many changes a truncation takes."""
    changes = 0
    while True:
        world = follower(synced=synced)
        world.memory.lose_power_after(changes, only_process=only_process)
        done = False
        with suppress(PowerLost):
            truncate(world)
            done = True
        world.memory.process_died()
        if not only_process:
            world.memory.crash(changes)
        world.reopen()
        check(world)
        assert check_disk(world.files, torn=True, settled=False) == {}
        if done:
            return changes
        changes += 1


@pytest.mark.slow
@pytest.mark.parametrize("only_process", [True, False], ids=["killed", "power lost"])
@pytest.mark.parametrize("offset", [0, BASES[1], BASES[2] + 2])
@pytest.mark.parametrize("synced", [0, PART, END])
def test_a_crash_in_a_truncation_leaves_a_prefix(offset: int, synced: int, only_process: bool) -> None:
    bound = max(b for b in BOUNDS if b <= offset)

    def check(world: World) -> None:
        log = world.log
        end = log.log_end_offset
        assert log_bytes(log) == before(end)
        assert end >= (bound if only_process else min(synced, bound))
        check_derived(world)
        catch_up(LEADER.log, log)
        assert log_bytes(log) == DATA
        assert log.leader_epochs.entries == LEADER.log.leader_epochs.entries
        assert aborted(log) == aborted(LEADER.log)

    assert crash_everywhere(lambda world: cut(world, offset), synced, check, only_process=only_process) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("only_process", [True, False], ids=["killed", "power lost"])
@pytest.mark.parametrize("offset", [0, PART, END + 50])
@pytest.mark.parametrize("synced", [0, PART, END])
def test_a_crash_in_beginning_anew_leaves_a_prefix_or_an_empty_log(
    offset: int, synced: int, only_process: bool
) -> None:
    def check(world: World) -> None:
        log = world.log
        if log.size_bytes and log.log_start_offset == 0:
            assert log_bytes(log) == before(log.log_end_offset)
        elif log.log_start_offset < log.log_end_offset:
            assert log.log_start_offset == offset, "a full truncation raises the log start first"
            assert log_bytes(log) == before(log.log_end_offset)[len(before(offset)) :]
        truncate_fully_and_start_at(world.log, offset, NOW)
        assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (offset, offset, 0)

    crash_everywhere(lambda world: begin_anew(world, offset), synced, check, only_process=only_process)


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power lost"])
def test_epochs_that_were_cut_do_not_come_back(power: bool) -> None:
    """The new leader's records of an older epoch go on where ours of a later one were cut: recovery, which reads the
    last segment alone, has to find their epoch, and not the one that began there once."""
    old = World()
    for epoch in range(3):
        old.leader_epoch = epoch
        for _ in range(3):
            old.append(batch([bytes(300)]))
    new = World()
    for _ in range(20):
        new.append(batch([bytes(300)]))
    new.leader_epoch = 3
    new.append(batch([b"x"]))
    world = World()
    catch_up(old.log, world.log)
    world.sync()
    world.directory.checkpoints()
    assert [entry.epoch for entry in world.log.leader_epochs.entries] == [0, 1, 2]
    catch_up(new.log, world.log, 900)
    truncate_to(world.log, 20, NOW)
    for _ in range(2):
        assert [world.log.epoch_of(offset) for offset in range(20)] == [0] * 20
        assert world.log.epoch_end_offset(1, world.log.leader_epoch) == (-1, -1)
        world.sync()
        world.directory.checkpoints()
        if power:
            world.memory.crash(11)
        world.reopen()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2, 11, 29, 30, 88, 199])
def test_a_follower_of_a_compacted_log(seed: int) -> None:
    """Gaps, emptied batches and lost markers, truncations at any point, restarts of every kind: the same bytes."""
    chance = random.Random(seed)
    config = SMALL._replace(segment_bytes=700, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.01)
    leader, other = World(config), World(config._replace(cleanup_policy=("delete",)))
    sequences = {1: 0, 2: 0}
    for number in range(120):
        leader.leader_epoch = number // 40
        producer = chance.choice((1, 2))
        keys = [b"k%d" % chance.randrange(6) for _ in range(chance.randint(1, 3))]
        data = batch(
            [b"%d" % number + bytes(chance.randrange(60))] * len(keys),
            keys=keys,
            timestamp=NOW + number,
            producer=producer,
            epoch=0,
            sequence=sequences[producer],
            transactional=True,
        )
        sequences[producer] += len(keys)
        leader.append(data, verified=True)
        if chance.random() < 0.4:
            leader.mark(producer, committed=chance.random() < 0.5)
    leader.sync()
    for _ in range(3):
        leader.run_jobs()
    data = log_bytes(leader.log)
    assert len(list(iter_headers(data))) < 120
    for _ in range(12):
        for _ in range(chance.randrange(8)):
            fetch_once(leader.log, other.log, chance.choice((1, 400, 3000)))
        step = chance.randrange(5)
        if step == 0:
            truncate_to(other.log, chance.randint(0, other.log.log_end_offset), NOW)
        elif step == 1:
            other.sync()
            other.directory.checkpoints()
        elif step < 4:
            end = other.log.log_end_offset
            other.reopen(clean=step == 2)
            assert other.log.log_end_offset == end
        elif other.log.durable_offset:
            durable = other.log.durable_offset
            other.memory.crash(seed)
            other.reopen()
            assert other.log.log_end_offset >= durable
    catch_up(leader.log, other.log)
    assert log_bytes(other.log, 0) == data
    fresh, _ = fed(data, World(other.config))
    assert kept(other.log.producers) == kept(fresh.log.producers)
    assert aborted(other.log) == aborted(fresh.log)
    assert other.log.leader_epochs.entries == fresh.log.leader_epochs.entries
    assert other.log.last_stable_offset <= leader.log.last_stable_offset


@pytest.mark.slow
def test_what_was_cut_does_not_come_back_behind_what_was_written_since() -> None:
    """The power goes at any point after a truncation: recovery trusts nothing that was written since but what it was
    told is on disk, and meets no batch of the old leader behind the new one's."""
    for offset in BOUNDS[2::4]:
        for changes in range(0, 40, 3):
            world = follower(synced=END)
            truncate_to(world.log, offset, NOW)
            world.memory.lose_power_after(changes)
            new = World()
            fed(before(offset), new)
            new.leader_epoch = 8
            with suppress(PowerLost):
                for number in range(60):
                    new.append(batch([b"new %d" % number + bytes(40)] * (1 + number % 3)))
                    catch_up(new.log, world.log)
                    if number % 7 == 6:
                        world.sync()
                        world.directory.checkpoints()
            synced = world.log.durable_offset
            world.memory.crash(1000 * offset + changes)
            if str(PARTITION) not in world.files.list(""):
                world.directory.create(PARTITION, TOPIC_ID, SMALL, now_ms=NOW)
            world.reopen()
            assert world.log.log_end_offset >= synced
            catch_up(new.log, world.log)
            assert log_bytes(world.log) == log_bytes(new.log)
            assert world.log.leader_epochs.entries == new.log.leader_epochs.entries
