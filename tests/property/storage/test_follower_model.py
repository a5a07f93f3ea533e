"""Two replicas of one log that take turns in leading, in whatever order, with power lost at any point.

What must hold: (epoch, offset) names the same bytes everywhere (R2); what a log says of producers, transactions, epochs
and snapshots follows from its batches alone; what was synced and not truncated since is there after a crash; and a
follower that has caught up is its leader, byte for byte.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from oncelog.records.batch import iter_headers
from oncelog.sim.virtual.files import PowerLost
from oncelog.storage.log.rolling import roll
from oncelog.storage.log.truncate import truncate_fully_and_start_at, truncate_to
from tests.unit.storage.replication import aborted, catch_up, check_derived, fetch_once, kept, log_bytes, truncation
from tests.unit.storage.support import NOW, PARTITION, SMALL, TOPIC_ID, World, batch

PRODUCERS = st.integers(0, 2)
SIZES = st.lists(st.integers(0, 90), min_size=1, max_size=3)


class ReplicaMachine(RuleBasedStateMachine):
    """Rules on two data directories; the model is what leaders have ever written."""

    @initialize(
        interval=st.sampled_from([0, 100, 100_000]),
        segment_bytes=st.sampled_from([500, 1500, 1 << 20]),
        other_segment_bytes=st.sampled_from([500, 1500]),
    )
    def begin(self, interval: int, segment_bytes: int, other_segment_bytes: int) -> None:
        config = SMALL._replace(index_interval_bytes=interval, segment_bytes=segment_bytes)
        self.leader, self.follower = World(config), World(config._replace(segment_bytes=other_segment_bytes))
        self.written: dict[tuple[int, int], bytes] = {}
        self.epoch = 0
        self.synced: dict[int, int] = {}
        self.counter = 0
        self.leader.log.begin_epoch(0)

    @rule(sizes=SIZES, producer=st.none() | PRODUCERS, transactional=st.booleans())
    def append(self, sizes: list[int], producer: int | None, transactional: bool) -> None:
        self.counter += 1
        values = [b"%d-%d" % (self.counter, index) + bytes(size) for index, size in enumerate(sizes)]
        timestamp = NOW + self.counter * 10 - 300 * (self.counter % 5 == 0)
        if producer is None:
            data = batch(values, timestamp=timestamp)
        else:
            known = self.leader.log.producers.entries.get(producer)
            transactional = transactional or self.leader.log.producers.has_open_transaction(producer)
            sequence = 0 if known is None else known.last_sequence + 1
            data = batch(
                values, producer=producer, epoch=0, sequence=sequence, transactional=transactional, timestamp=timestamp
            )
        appended = self.leader.append(data, verified=True)
        self.written[self.epoch, appended.base_offset] = bytes(data)

    @rule(producer=PRODUCERS, committed=st.booleans())
    def mark(self, producer: int, committed: bool) -> None:
        appended = self.leader.mark(producer, committed=committed)
        log = self.leader.log
        self.written[self.epoch, appended.base_offset] = log_bytes(log, appended.base_offset)

    @rule()
    def roll(self) -> None:
        roll(self.leader.log, NOW)

    @rule()
    def elect(self) -> None:
        """The follower leads, whatever it has; the other one will find out where they part."""
        self.leader, self.follower = self.follower, self.leader
        self._lead_on(self.leader)

    @rule(max_bytes=st.integers(1, 2000))
    def fetch(self, max_bytes: int) -> None:
        self._fetch_once(max_bytes)

    @rule(max_bytes=st.sampled_from([1, 500, 1 << 20]))
    def follow(self, max_bytes: int) -> None:
        self._follow(max_bytes)

    def _follow(self, max_bytes: int) -> None:
        while self._fetch_once(max_bytes):
            pass
        one, other = self.leader.log, self.follower.log
        assert log_bytes(other) == log_bytes(one)
        assert kept(other.producers) == kept(one.producers)
        assert other.producers.ongoing == one.producers.ongoing
        assert aborted(other) == aborted(one)

    def _fetch_once(self, max_bytes: int) -> bool:
        offset = truncation(self.leader.log, self.follower.log)
        if offset is not None:  # the power may be lost in the middle: nothing after it is promised any more
            self._cut(self.follower, _batch_start(self.follower, offset))
        return fetch_once(self.leader.log, self.follower.log, max_bytes)

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        """Anywhere, inside batches too: an unclean election would."""
        log = self.follower.log
        offset = int(log.log_end_offset * share)
        truncate_to(log, offset, NOW)
        assert log.log_end_offset <= offset or offset == 0
        self._cut(self.follower, log.log_end_offset)

    @rule()
    def begin_anew(self) -> None:
        truncate_fully_and_start_at(self.follower.log, 0, NOW)
        self._cut(self.follower, 0)

    def _cut(self, world: World, end: int) -> None:
        self.synced[id(world)] = min(self.synced.get(id(world), 0), end)

    @rule(leads=st.booleans())
    def sync(self, leads: bool) -> None:
        world = self._world(leads)
        world.sync()
        self.synced[id(world)] = world.log.log_end_offset

    @rule(leads=st.booleans())
    def checkpoint(self, leads: bool) -> None:
        self._world(leads).directory.checkpoints()

    @rule(leads=st.booleans(), clean=st.booleans())
    def restart(self, leads: bool, clean: bool) -> None:
        world = self._world(leads)
        end = world.log.log_end_offset
        world.reopen(clean=clean)
        assert world.log.log_end_offset == end
        if clean:
            self.synced[id(world)] = end
        self._lead_on(world)

    @rule(leads=st.booleans(), seed=st.integers(0, 1 << 30))
    def lose_power(self, leads: bool, seed: int) -> None:
        self._crash(self._world(leads), seed)

    @rule(changes=st.integers(0, 25), seed=st.integers(0, 1 << 30), share=st.floats(0, 1), process=st.booleans())
    def end_in_a_truncation(self, changes: int, seed: int, share: float, process: bool) -> None:
        world = self.follower
        offset = int(world.log.log_end_offset * share)
        self._cut(world, _batch_start(world, offset))
        world.memory.lose_power_after(changes, only_process=process)
        with suppress(PowerLost):
            truncate_to(world.log, offset, NOW)
        self._end(world, seed, process)

    @rule(changes=st.integers(0, 25), seed=st.integers(0, 1 << 30), process=st.booleans())
    def end_while_following(self, changes: int, seed: int, process: bool) -> None:
        world = self.follower
        world.memory.lose_power_after(changes, only_process=process)
        with suppress(PowerLost):
            self._follow(700)
        self._end(world, seed, process)

    def _end(self, world: World, seed: int, process: bool) -> None:
        world.memory.process_died()
        if process:
            world.reopen()
        else:
            self._crash(world, seed)

    def _crash(self, world: World, seed: int) -> None:
        world.memory.crash(seed)
        if str(PARTITION) not in world.files.list(""):
            world.directory.logs.clear()
            world.directory.transactions.dropped(PARTITION)
            world.log = world.directory.create(PARTITION, TOPIC_ID, world.config, now_ms=NOW)
        else:
            world.reopen()
        assert world.log.log_end_offset >= self.synced.get(id(world), 0)
        self._lead_on(world)

    def _lead_on(self, world: World) -> None:
        """A leader that comes back is elected anew, whatever it has lost: an epoch without records was forgotten."""
        if world is self.leader:
            self.epoch += 1
            world.leader_epoch = self.epoch
            world.log.begin_epoch(self.epoch)

    def _world(self, leads: bool) -> World:
        return self.leader if leads else self.follower

    @invariant()
    def epoch_and_offset_name_the_same_bytes(self) -> None:
        if not hasattr(self, "leader"):
            return
        for world in (self.leader, self.follower):
            data = log_bytes(world.log)
            expected = 0
            for position, header in iter_headers(data):
                key = header.partition_leader_epoch, header.base_offset
                assert data[position : position + header.size_bytes] == self.written[key]
                assert header.base_offset == expected
                expected = header.next_offset
            assert expected == world.log.log_end_offset

    @invariant()
    def the_rest_follows_from_the_batches(self) -> None:
        if hasattr(self, "leader"):
            check_derived(self.leader)
            check_derived(self.follower)

    def teardown(self) -> None:
        if hasattr(self, "leader"):
            catch_up(self.leader.log, self.follower.log)
            assert log_bytes(self.follower.log) == log_bytes(self.leader.log)


def _batch_start(world: World, offset: int) -> int:
    """The offset at which the batch begins that holds ``offset``, or the log's end: a truncation cuts there."""
    bases = [header.base_offset for _, header in iter_headers(log_bytes(world.log)) if header.next_offset > offset]
    return min([offset, *bases])


ReplicaMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestReplicas = pytest.mark.slow(ReplicaMachine.TestCase)
