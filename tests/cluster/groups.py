"""Consumer groups whose coordinators fail: `python -m tests.cluster.groups --seed 7 --rounds 40`.

Groups of several clients read a topic that is written to, and commit what they have processed: eager and cooperative,
dynamic members and static ones. A round chooses a group, perhaps has one of its members close and come again, and
kills, stops or freezes the broker that coordinates it, and perhaps the next one as soon as there is one. Then every
group has to commit on to where the topic ended when all was healed; one that does not while the producer is
acknowledged thousands of records is stuck.

What must hold:
1. The offset that an independent client is told of, by OffsetFetch at any time and in the end after a restart of all
   brokers, is never less than one whose commit was acknowledged before it asked.
2. A member begins at such an offset, too.
3. A group's assignment, when its members are static, stays as it is, whatever becomes of its coordinator; they do not
   even hear of it, unless one of them was closed.
4. In the end every record has been processed by every group, and all that the producer was acknowledged is there.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from oncelog.admin.groups import GroupDescription, describe_group
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.cluster.brokers import GROUPS, Cluster
from tests.cluster.group_members import GROUPS_BY_NAME, ConfluentMember, Role, Taken
from tests.cluster.load import Load, check, create_topic
from tests.cluster.replicas import differing_replicas
from tests.cluster.strikes import KINDS, draw_away_s, drilled, strike
from tests.peers.clients.sweep.wire import Wire
from tests.waiting import HANG_S, wait_until

TOPIC: Final = "grouped"
PARTITIONS: Final = 4
MEMBERS: Final = 2
_SESSION_MS: Final = 6_000
_STATIC_SESSION_MS: Final = 60_000
_PAUSE_S: Final = 0.05
_ANSWER_S: Final = 1.0
_PATIENCE: Final = 20_000
"""Records acknowledged, of all partitions, in which a group has to commit on."""
_HANGING: Final = 4_000
"""Records in which a client that has request time-outs returns from any call."""
_DELAYS_S: Final = (0.0, 0.0, 0.005, 0.02, 0.1, 0.4)


class Group:
    """A consumer group: the records that its members have processed, and the offsets acknowledged to them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.kind = GROUPS_BY_NAME[name]
        self.acknowledged: dict[int, int] = {}
        self.processed: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self.assignments = 0
        """How often a member was told of partitions."""
        self.replaced = 0
        """Members whose client hung."""
        self.broken: list[str] = []
        self._lock = threading.Lock()

    def committed(self, offsets: Mapping[int, int]) -> None:
        """A commit was acknowledged."""
        with self._lock:
            for partition, offset in offsets.items():
                self.acknowledged[partition] = max(offset, self.acknowledged.get(partition, 0))

    def processing(self, taken: Sequence[Taken]) -> None:
        """Records were taken."""
        with self._lock:
            for one in taken:
                self.processed[one.partition].add(one.offset)

    def snapshot(self) -> dict[int, int]:
        """The acknowledged offsets of now."""
        with self._lock:
            return dict(self.acknowledged)

    def told(self, who: str, found: Mapping[int, int], least: Mapping[int, int]) -> None:
        """Somebody was told of offsets, which may not be less than ``least``."""
        for partition, offset in least.items():
            if found.get(partition, -1) < offset:
                self.broken.append(
                    f"{self.name}: {who} was told of {found.get(partition)} for partition {partition}, "
                    f"after {offset} was acknowledged"
                )

    def unprocessed(self, ends: Sequence[int]) -> Iterator[str]:
        """One line for each partition with records that nobody processed."""
        for partition, end in enumerate(ends):
            missing = set(range(end)) - self.processed[partition]
            if missing:
                least = min(missing)
                yield f"{self.name}: {len(missing)} records of partition {partition} never processed, first {least}"


class Member(threading.Thread):
    """One consumer until it is told to stop, or several after each other."""

    def __init__(self, group: Group, number: int, bootstrap: str, session_ms: int) -> None:
        super().__init__(name=f"{group.name}-{number}", daemon=True)
        self.group = group
        self._begins: dict[int, dict[int, int]] = {}
        instance = f"{self.name}-instance" if group.kind.is_static else None
        session_ms = _STATIC_SESSION_MS if group.kind.is_static else session_ms
        self._role = Role(bootstrap, TOPIC, group.name, group.kind.strategy, instance, session_ms, self._assigned)
        self._again = threading.Event()
        self._stopping = threading.Event()
        self.number = number
        self.steps = 0

    def replaced(self) -> Member:
        """Another member in the place of this one, whose client hangs."""
        self.stop()
        return Member(self.group, self.number, self._role.bootstrap, self._role.session_ms)

    def bounce(self) -> None:
        """Close, and come again as another consumer."""
        self._again.set()

    def stop(self) -> None:
        """Stop after the step under way."""
        self._stopping.set()

    def run(self) -> None:
        """See the class."""
        try:
            while not self._stopping.is_set():
                self._again.clear()
                client = self.group.kind.make(self._role)
                try:
                    while not (self._again.is_set() or self._stopping.is_set()):
                        self.group.committed(client.step(self._process))
                        self.steps += 1
                finally:
                    client.close()
        except Exception as failure:  # noqa: BLE001  # whatever it is, the drill has failed by it
            self.group.broken.append(f"{self.name}: {failure!r}")

    def _assigned(self, partitions: Iterable[int]) -> None:
        least = self.group.snapshot()
        gained = list(partitions)
        self._begins.update({one: {one: least[one]} for one in gained if one in least})
        self.group.assignments += bool(gained)

    def _process(self, taken: Sequence[Taken]) -> None:
        for one in taken:
            if least := self._begins.pop(one.partition, None):
                self.group.told(self.name, {one.partition: one.offset}, least)
        self.group.processing(taken)


class Auditor(threading.Thread):
    """Asks one broker for the offsets of all groups, at every time; it answers for those that it coordinates."""

    def __init__(self, address: str, groups: Sequence[Group]) -> None:
        super().__init__(name=f"auditor of {address}", daemon=True)
        self._address = address
        self._groups = groups
        self._stopping = threading.Event()
        self.answers = 0

    def run(self) -> None:
        """See the class."""
        is_stable = False
        while not self._stopping.wait(_PAUSE_S):
            is_stable = not is_stable
            self.ask(is_stable=is_stable)

    def stop(self) -> None:
        """Stop after the question under way."""
        self._stopping.set()

    def ask(self, *, is_stable: bool) -> set[str]:
        """The groups whose offsets were answered."""
        least = {group.name: group.snapshot() for group in self._groups}
        asked = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(range(PARTITIONS)))]
        groups = [OffsetFetchRequestGroup(group_id=group.name, topics=asked) for group in self._groups]
        answer = None
        with suppress(OSError), Wire(self._address, _ANSWER_S) as wire:
            answer = wire.call(OffsetFetchRequest(groups=groups, require_stable=is_stable), 8)
        answered = set()
        for group, found in zip(self._groups, answer.groups if answer else (), strict=False):
            partitions = [] if found.error_code else found.topics[0].partitions
            if partitions and not any(one.error_code for one in partitions):
                offsets = {one.partition_index: one.committed_offset for one in partitions}
                group.told(f"{self.name}, require_stable={is_stable},", offsets, least[group.name])
                answered.add(group.name)
        self.answers += len(answered)
        return answered


def ask_everybody(auditors: Sequence[Auditor], groups: Sequence[Group]) -> None:
    """Both ways, until every group is answered for."""
    for is_stable in (True, False):
        left = {group.name for group in groups}

        def is_answered(left: set[str] = left, is_stable: bool = is_stable) -> bool:
            for auditor in auditors:
                left -= auditor.ask(is_stable=is_stable)
            return not left

        wait_until(is_answered, lambda left=left: f"the offsets of {left}", poll_s=_PAUSE_S)


@dataclass
class Round:
    """One failure of a coordinator."""

    group: str
    kind: str
    bounced: int | None
    """The member that closes and comes again."""
    delay_s: float
    """Between that and the strike."""
    away_s: float
    is_twice: bool
    """The coordinator after it fails, too."""
    brokers: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        bounced = "" if self.bounced is None else f", {self.delay_s * 1000:g} ms after member {self.bounced} closes"
        return f"{self.kind} {self.brokers}, coordinator of {self.group}{bounced}"


def drawn(chance: random.Random, groups: Sequence[str], kinds: Sequence[str]) -> Round:
    """The next round of a seed."""
    kind = chance.choice(kinds)
    bounced = chance.choice((None, *range(MEMBERS)))
    away_s = draw_away_s(chance, kind, (0.0, 0.5, 2.0))
    return Round(chance.choice(groups), kind, bounced, chance.choice(_DELAYS_S), away_s, chance.random() < 0.3)


class Drill:
    """A cluster, a producer, and the groups that follow it."""

    def __init__(self, cluster: Cluster, names: Sequence[str], session_ms: int) -> None:
        self.cluster = cluster
        bootstrap = cluster.bootstrap_servers
        self.load = Load(bootstrap, TOPIC, "producer", PARTITIONS, pause_s=_PAUSE_S)
        self.groups = [Group(name) for name in names]
        self.members = {
            group.name: [Member(group, number, bootstrap, session_ms) for number in range(MEMBERS)]
            for group in self.groups
        }
        self.auditors = [Auditor(cluster.address(broker_id), self.groups) for broker_id in cluster.ids]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Everybody at work, and at the end nobody."""
        self.load.start()
        for thread in self._threads():
            thread.start()
        try:
            yield
        finally:
            self.load.stop()
            for thread in self._threads():
                thread.stop()
            for thread in self._threads():  # one whose client hangs is left behind, and not waited for as long
                thread.join(HANG_S / 10)

    def _threads(self) -> list[Auditor | Member]:
        return [*self.auditors, *(member for members in self.members.values() for member in members)]

    def broken(self) -> list[str]:
        """Broken promises, brokers that ended."""
        return [line for group in self.groups for line in group.broken] + self.cluster.ended_by_themselves()

    def begin(self) -> None:
        """Wait until all members of all groups take part."""
        self.load.wait_for_more()
        self.settle()
        for group in self.groups:
            wait_until(
                lambda group=group: self.broken() or self._is_complete(group),
                lambda group=group: f"all members of {group.name}: {self._described(group)}",
                poll_s=_PAUSE_S,
            )

    def _is_complete(self, group: Group) -> bool:
        members = self._described(group).members
        return len(members) == MEMBERS and all(one.partitions for one in members)

    def _described(self, group: Group) -> GroupDescription:
        found = self.cluster.ask(lambda client: describe_group(client, group.name))
        assert isinstance(found, GroupDescription)
        return found

    def settle(self) -> str:
        """Wait until every group has committed all that is acknowledged now; those that took more than a second."""
        steps = {member: member.steps for members in self.members.values() for member in members}
        marks = [len(each) for each in self.load.acknowledged]
        began_s, before = time.monotonic(), self.load.count
        took_s: dict[str, float] = {}

        def is_done() -> bool:
            for group in self.groups:
                if group.name not in took_s and self._is_behind(group, marks):
                    took_s[group.name] = time.monotonic() - began_s
                elif group.name not in took_s and self.load.count - before > _HANGING:
                    self._replace_hanging(group, steps)
            return len(took_s) == len(self.groups)

        wait_until(
            lambda: is_done() or self.broken() or self.load.count - before > _PATIENCE,
            lambda: self._stuck(took_s, marks),
            poll_s=_PAUSE_S,
        )
        if not is_done() and not self.broken():
            raise TimeoutError(self._stuck(took_s, marks))
        return ", ".join(f"{name} {took:.1f} s" for name, took in took_s.items() if took > 1)

    def _replace_hanging(self, group: Group, steps: Mapping[Member, int]) -> None:
        """librdkafka 2.16 may lock itself up when a leader goes while it validates its positions there
        (https://github.com/confluentinc/librdkafka/issues/5476): no call returns, and its heartbeats end."""
        members = self.members[group.name]
        for member in list(members):
            if group.kind.make is ConfluentMember and steps.get(member) == member.steps:
                print(f"      {member.name}: librdkafka hangs (its issue 5476); another comes in its place", flush=True)
                members[member.number] = member.replaced()
                members[member.number].start()
                group.replaced += 1

    def _is_behind(self, group: Group, marks: Sequence[int]) -> bool:
        return all(group.acknowledged.get(partition, 0) >= mark for partition, mark in enumerate(marks))

    def _stuck(self, moving: Iterable[str], marks: Sequence[int]) -> str:
        stuck = [group for group in self.groups if group.name not in moving]
        return "; ".join(
            f"{group.name} is stuck: {group.acknowledged} acknowledged of {marks}; {self._described(group)}"
            for group in stuck
        )

    def do(self, one: Round) -> None:
        """One failure, healed, and everybody gone on."""
        group = next(each for each in self.groups if each.name == one.group)
        before, assignments, replaced = self.assignment(group), group.assignments, group.replaced
        if one.bounced is not None:
            self.members[one.group][one.bounced].bounce()
            time.sleep(one.delay_s)
        self._strike(one)
        self.cluster.wait_healthy()
        slowest = self.settle()
        ask_everybody(self.auditors, self.groups)
        if group.kind.is_static:
            if self.assignment(group) != before:
                group.broken.append(f"{group.name}: was assigned {before}, and is {self.assignment(group)}")
            if one.bounced is None and group.replaced == replaced and group.assignments != assignments:
                group.broken.append(f"{group.name}: was assigned partitions anew by another coordinator")
        print(f"      late: {slowest}" if slowest else "      all at once", flush=True)

    def assignment(self, group: Group) -> dict[str, tuple[str, ...]]:
        """Instance id → partitions, as the coordinator knows them; of a static group only."""
        if not group.kind.is_static:
            return {}
        members = self._described(group).members
        return {str(one.instance_id): tuple(sorted(map(str, one.partitions))) for one in members}

    def _strike(self, one: Round) -> None:
        first = self._end_coordinator(one)
        while one.is_twice and first.is_alive() and len(one.brokers) == 1:
            if self.cluster.coordinator(one.group, GROUPS) not in (-1, *one.brokers):
                self._end_coordinator(one).join()
            time.sleep(0.01)
        first.join()

    def _end_coordinator(self, one: Round) -> threading.Thread:
        """Returns when it has ended; the thread brings it back."""
        while (found := self.cluster.coordinator(one.group, GROUPS)) not in self.cluster.ids:
            time.sleep(0.01)
        one.brokers.append(found)
        struck = threading.Event()

        def end() -> None:
            try:
                strike(self.cluster, one.kind, [found], one.away_s, struck.set)
            except Exception as failure:  # noqa: BLE001  # whatever it is, the drill has failed by it
                self.groups[0].broken.append(f"{one}: {failure}")
                struck.set()

        thread = threading.Thread(target=end)
        thread.start()
        struck.wait()
        return thread


@dataclass(frozen=True)
class Options:
    """The groups of a drill, and how brokers end in it."""

    groups: Sequence[str] = tuple(GROUPS_BY_NAME)
    kinds: Sequence[str] = KINDS
    session_ms: int = _SESSION_MS


def run(seed: int, rounds: int, directory: Path, options: Options) -> list[str]:
    """One drill in an empty directory; what is wrong."""
    chance = random.Random(seed)
    with Cluster(directory / "brokers") as cluster:
        create_topic(cluster.bootstrap_servers, TOPIC, PARTITIONS)
        cluster.wait_healthy()
        drill = Drill(cluster, options.groups, options.session_ms)
        try:
            with drill.running():
                began_s = time.monotonic()
                drill.begin()
                print(f"  all take part after {time.monotonic() - began_s:.2f} s", flush=True)
                for number in range(rounds):
                    one = drawn(chance, options.groups, options.kinds)
                    began_s = time.monotonic()
                    drill.do(one)
                    print(f"  {number:3} {time.monotonic() - began_s:6.2f} s  {one}", flush=True)
                    if drill.broken():
                        break
                drill.load.stop()
                drill.settle()
        except TimeoutError as failure:
            return [str(failure), *drill.broken()]
        return drill.broken() or list(_compared(drill))


def _compared(drill: Drill) -> Iterator[str]:
    """All brokers are started anew; what is on their disks is all that there is."""
    cluster = drill.cluster
    codes = [cluster.stop(broker_id) for broker_id in cluster.ids]
    if any(codes):
        yield f"exit codes after SIGTERM: {codes}"
    yield from differing_replicas({one: cluster.data_directory(one) for one in cluster.ids}, TOPIC)
    cluster.start()
    cluster.wait_healthy()
    yield from check(cluster.bootstrap_servers, TOPIC, [drill.load])
    ends = [len(each) for each in drill.load.acknowledged]
    before = len(drill.broken())
    ask_everybody(drill.auditors, drill.groups)
    yield from drill.broken()[before:]
    for group in drill.groups:
        yield from group.unprocessed(ends)
        print(f"  {group.name}: {sum(map(len, group.processed))} records, {group.assignments} assignments", flush=True)
    print(f"  {drill.load.count} records, {sum(one.answers for one in drill.auditors)} answers of OffsetFetch")


def main() -> int:
    """Run the rounds of a seed; 1 when something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="whose coordinators, when and how")
    parser.add_argument("--rounds", type=int, default=20, help="failures (default 20)")
    parser.add_argument("--client", choices=GROUPS_BY_NAME, action="append", help="one of the groups (default: all)")
    parser.add_argument("--kind", choices=KINDS, action="append", help="how coordinators end (default: all)")
    parser.add_argument(
        "--session", type=int, default=_SESSION_MS, metavar="MS", help=f"of members that are not static ({_SESSION_MS})"
    )
    given = parser.parse_args()
    options = Options(given.client or tuple(GROUPS_BY_NAME), given.kind or KINDS, given.session)
    return drilled("groups", given.seed, lambda directory: run(given.seed, given.rounds, directory, options))


if __name__ == "__main__":
    sys.exit(main())
