"""The world of a seed: who is there, what befalls them, and the rules that are looked at after every step.

Z1. No two consumers deliver a partition at one time; of Java's, only those count whose session lives.
Z2. A group's offset never goes back.
Z3. When nothing happens any more, every partition is delivered by one consumer, the one the range algorithm names.
Z4. Then all records are read, and the offsets are the ends of the logs.
Z5. Where nobody died, froze or was cut off, our consumers read nothing twice after one another.
Z6. No consumer of Java's dies of our slowness: where nobody freezes or is cut off, none dies.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.legacy.zookeeper_groups.machine.member import ENDED, ZooKeeperMember
from oncelog.legacy.zookeeper_groups.machine.nodes import offset_path, offset_value
from oncelog.legacy.zookeeper_groups.machine.settings import ZooKeeperGroupSettings
from oncelog.legacy.zookeeper_groups.machine.subscription import Subscription
from oncelog.legacy.zookeeper_groups.step_runner import StepRunner
from tests.simulation.zookeeper_groups.java import JavaConsumer
from tests.simulation.zookeeper_groups.tree import Tree, TreeSession

TOPIC: Final = TopicName("t")
TIMEOUT_MS: Final = 6_000
STEP_MS: Final = 60
_QUIET_MS: Final = 25_000
_BROKER: Final = b'{"version":4,"host":"b","port":1,"endpoints":["PLAINTEXT://b:1"]}'


class Violation(Exception):
    """A rule does not hold; the message says which, and when."""


@dataclass(frozen=True, slots=True)
class Story:
    """The kinds of things that happen in a run of ``length_ms``."""

    deaths: bool = True
    freezes: bool = True
    cuts: bool = True
    java: bool = True
    length_ms: int = 40_000


class CompletedRun(NamedTuple):
    """A run that held all rules."""

    consumers: int
    read: int
    repeated: int
    java_died: int


@dataclass(slots=True, eq=False)
class _Ours:
    """A consumer of ours, with the part of its shell that is simulated."""

    name: str
    member: ZooKeeperMember
    carrier: StepRunner
    session: TreeSession | None = None
    frozen_until_ms: int = 0
    cut_until_ms: int = 0
    is_dead: bool = False
    is_stepping: bool = False
    generation: int = 0
    positions: dict[TopicPartition, int] = field(default_factory=dict)


class _World:
    def __init__(self, seed: int, story: Story) -> None:
        self.seed = random.Random(seed)
        self.story = story
        self.tree = Tree(self.seed)
        self.tree.between = self._between
        self.ours: list[_Ours] = []
        self.java: list[JavaConsumer] = []
        self.ends: dict[TopicPartition, int] = {}
        self.read: dict[TopicPartition, list[int]] = {}
        """How often each record was read."""
        self.committed: dict[TopicPartition, int] = {}
        self.count = 0
        for path in ("/brokers", "/brokers/ids", "/brokers/topics", "/consumers"):
            self.tree.put(path, b"")
        self.tree.put("/brokers/ids/0", _BROKER)
        self.grow(self.seed.randrange(1, 7))

    def grow(self, more: int) -> None:
        """Give the topic more partitions."""
        for number in range(len(self.ends), len(self.ends) + more):
            partition = TopicPartition(TOPIC, number)
            self.ends[partition], self.read[partition], self.committed[partition] = 0, [], 0
            for path in ("/consumers/g", "/consumers/g/offsets", f"/consumers/g/offsets/{TOPIC}"):
                if path not in self.tree.values:
                    self.tree.put(path, b"")
            self.tree.put(offset_path("g", partition), offset_value(0))
        value = {"version": 1, "partitions": {str(number): [0] for number in range(len(self.ends))}}
        self.tree.put(f"/brokers/topics/{TOPIC}", json.dumps(value).encode())

    def join(self) -> None:
        """One more consumer, of ours or of Java's."""
        self.count += 1
        if self.story.java and self.seed.random() < 0.4:
            name = f"g_java{self.count}"
            self.java.append(JavaConsumer(name, "g", TOPIC, self.tree, TIMEOUT_MS, self.seed))
            return
        name = f"g_ours{self.count}"
        settings = ZooKeeperGroupSettings("g", auto_commit_interval_ms=self.seed.choice((500, 5_000)))
        subscription = Subscription.to_topics([TOPIC], self.seed.choice((1, 1, 2)))
        member = ZooKeeperMember(name, subscription, settings, 0)

        def opening(changed: Any) -> Any:
            ours.session = TreeSession(self.tree, TIMEOUT_MS, changed, self.seed)
            return ours.session

        def connecting(_: object) -> Any:
            raise AssertionError("every offset is in the tree: nothing is asked of brokers")

        carrier = StepRunner(
            opening,
            name,
            subscription,
            settings,
            protocol="PLAINTEXT",
            connecting=connecting,
            changed=member.changed,
            stop_delivery=lambda: None,
        )
        ours = _Ours(name, member, carrier)
        self.ours.append(ours)

    def tick(self) -> None:
        """Let some time pass, and everybody do what is due."""
        self.tree.now_ms += self.seed.randrange(1, STEP_MS)
        now_ms = self.tree.now_ms
        for partition in self.ends:
            if self.seed.random() < 0.05 and now_ms < self.story.length_ms:
                self.ends[partition] += 1
                self.read[partition].append(0)
        for our in self.ours:
            self._befall(our, now_ms)
        for session in self._sessions():
            if session.hears and not session.stopped and self.tree.is_alive(session.session_id):
                self.tree.hear(session.session_id)
        self.tree.expire()
        self.tree.fire_watches()
        everybody: list[_Ours | JavaConsumer] = [*self.ours, *self.java]
        self.seed.shuffle(everybody)
        for item in everybody:
            if isinstance(item, _Ours):
                self._step(item)
            else:
                self._step_java(item)
        self._check()

    def _befall(self, ours: _Ours, now_ms: int) -> None:
        """Freezing and cutting off, and their ends."""
        if now_ms < self.story.length_ms and now_ms > ours.frozen_until_ms and now_ms > ours.cut_until_ms:
            if self.story.freezes and self.seed.random() < 0.0015:
                ours.frozen_until_ms = now_ms + self.seed.choice((500, 5_000, 9_000))
            if self.story.cuts and self.seed.random() < 0.0015:
                ours.cut_until_ms = now_ms + self.seed.choice((300, 4_000, 9_000))
        if ours.session is not None:
            was_cut = ours.session.cut
            ours.session.frozen, ours.session.cut = now_ms < ours.frozen_until_ms, now_ms < ours.cut_until_ms
            ours.session.lossy = self.story.cuts and now_ms < self.story.length_ms
            if was_cut != ours.session.cut:  # kazoo loses its watches with the connection, and says when it is back
                ours.member.changed()

    def _sessions(self) -> list[TreeSession]:
        ours = [our.session for our in self.ours if our.session is not None and not our.is_dead]
        return ours + [member.session for member in self.java if not member.is_dead]

    def _between(self, session: TreeSession) -> None:
        """Let somebody else of ours go first, now and then."""
        if self.seed.random() < 0.02:
            others = [our for our in self.ours if not our.is_stepping and our.session is not session]
            if others:
                self._step(self.seed.choice(others))

    def _step(self, ours: _Ours) -> None:
        now_ms = self.tree.now_ms
        if ours.is_dead or ours.is_stepping or now_ms < ours.frozen_until_ms or ours.member.state in ENDED:
            return
        ours.is_stepping = True
        step = ours.member.next_step(now_ms)
        if step is not None:
            outcome = ours.carrier.run(step)
            ours.member.done(outcome, self.tree.now_ms)
        ours.is_stepping = False
        self._consume(ours)

    def _consume(self, ours: _Ours) -> None:
        """The application: it reads what is there, and reports it."""
        member = ours.member
        if ours.generation != member.generation:
            ours.generation, ours.positions = member.generation, dict(member.positions)
        if not member.may_deliver(self.tree.now_ms):
            return
        for partition, position in ours.positions.items():
            if position < self.ends[partition] and self.seed.random() < 0.5:
                self._count(partition, position)
                ours.positions[partition] = position + 1
                member.processed(ours.generation, partition, position + 1)

    def _step_java(self, consumer: JavaConsumer) -> None:
        consumer.step(self.tree.now_ms)
        for partition, position in consumer.positions.items():
            if position < self.ends[partition]:
                self._count(partition, position)
                consumer.positions[partition] = position + 1

    def _count(self, partition: TopicPartition, offset: int) -> None:
        self.read[partition][offset] += 1

    def happen(self) -> None:
        """Now and then somebody joins, leaves or dies, or the topic grows."""
        chance = self.seed.random()
        if len(self.alive()) < 2 or chance < 0.35:
            if len(self.alive()) < 6:
                self.join()
        elif chance < 0.6:
            self._leave(self.seed.choice(self.alive()))
        elif chance < 0.8 and self.story.deaths:
            self._die(self.seed.choice(self.alive()))
        elif chance < 0.9 and len(self.ends) < 12:
            self.grow(1)

    def alive(self) -> list[_Ours | JavaConsumer]:
        """Consumers that have not left and not died."""
        ours = [our for our in self.ours if not our.is_dead and not our.member._leaving]
        return [*ours, *(member for member in self.java if not member.is_dead)]

    def _leave(self, ours: _Ours | JavaConsumer) -> None:
        if isinstance(ours, _Ours):
            ours.member.leave()
        else:
            ours.release()
            ours.session.stop()
            self.java.remove(ours)

    def _die(self, ours: _Ours | JavaConsumer) -> None:
        if isinstance(ours, _Ours):
            ours.is_dead = True
        else:
            self.java.remove(ours)

    def _check(self) -> None:
        now_ms = self.tree.now_ms
        delivered: dict[TopicPartition, str] = {}
        pairs = [
            *((entry.name, entry.positions) for entry in self._delivering()),
            *((j.name, j.positions) for j in self.java if self.tree.is_alive(j.session.session_id) and not j.is_dead),
        ]
        for name, positions in pairs:
            for partition in positions:
                if partition in delivered:
                    raise Violation(f"Z1 at {now_ms} ms: {partition} is read by {delivered[partition]} and {name}")
                delivered[partition] = name
        for partition, before in self.committed.items():
            now = int(self.tree.values[offset_path("g", partition)])
            if now < before:
                raise Violation(f"Z2 at {now_ms} ms: the offset of {partition} went from {before} to {now}")
            self.committed[partition] = now

    def _delivering(self) -> list[_Ours]:
        now_ms = self.tree.now_ms
        return [
            our
            for our in self.ours
            if not our.is_dead
            and now_ms >= our.frozen_until_ms
            and our.generation == our.member.generation
            and our.member.may_deliver(now_ms)
        ]

    def check_end(self) -> None:
        """The rules of a world in which nothing happens any more."""
        readers = [(entry.name, entry.positions) for entry in self._delivering()]
        readers += [(member.name, member.positions) for member in self.java if not member.is_dead]
        owned = sorted(partition for _, positions in readers for partition in positions)
        if owned != sorted(self.ends):
            states = {our.name: our.member.state.value for our in self.ours if not our.is_dead}
            raise Violation(f"Z3: of {len(self.ends)} partitions these are read: {owned}; {states}")
        for name, positions in readers:
            for partition in positions:
                owner = self.tree.values[f"/consumers/g/owners/{TOPIC}/{partition.partition}"].decode()
                if owner.rpartition("-")[0] != name:
                    raise Violation(f"Z3: {partition} is read by {name}, and its owner is {owner}")
        unread = {p: counts.count(0) for p, counts in self.read.items() if 0 in counts}
        if unread:
            raise Violation(f"Z4: records that nobody has read: {unread}")
        for item in self._delivering():
            for partition in item.positions:
                if self.committed[partition] != self.ends[partition]:
                    raise Violation(
                        f"Z4: {partition} ends at {self.ends[partition]}, {self.committed[partition]} is kept"
                    )


def run(seed: int, story: Story | None = None) -> CompletedRun:
    """Play a seed. Raises Violation."""
    story = story or Story()
    world = _World(seed, story)
    world.join()
    next_ms = 0
    while world.tree.now_ms < story.length_ms + _QUIET_MS:
        world.tick()
        if next_ms <= world.tree.now_ms < story.length_ms:
            next_ms = world.tree.now_ms + world.seed.randrange(500, 8_000)
            world.happen()
    if not world.alive():
        return CompletedRun(world.count, 0, 0, 0)
    world.check_end()
    repeated = sum(count - 1 for counts in world.read.values() for count in counts)
    died = sum(member.is_dead for member in world.java)
    calm = not (story.freezes or story.cuts)
    if calm and not story.deaths and not story.java and repeated:
        raise Violation(f"Z5: {repeated} records were read again")
    if calm and died:
        raise Violation(f"Z6: {died} consumers of Java's gave up")
    return CompletedRun(world.count, sum(len(counts) for counts in world.read.values()), repeated, died)
