"""Consumer groups whose coordinators fail: `python -m tests.cluster.groups --seed 7 --rounds 40`.

Groups of several clients read a topic that is written to, and commit what they have processed: eager and cooperative,
dynamic members and static ones. A round chooses a group, perhaps has one of its members close and come again
(``--processes``: or kills its process, which leaves without a word and what it had to commit undone), and
kills, stops or freezes the broker that coordinates it, and perhaps the next one as soon as there is one. Then every
group has to commit on to where the topic ended when all was healed; one that does not while the producer is
acknowledged thousands of records is stuck.

Groups of the new protocol (KIP-848) take part, and one whose members speak both.

What must hold:
1. The offset that an independent client is told of, by OffsetFetch at any time and in the end after a restart of all
   brokers, is never less than one whose commit was acknowledged before it asked.
2. A member begins at such an offset, too.
3. A group's assignment, when its members are static, stays as it is, whatever becomes of its coordinator; they do not
   even hear of it, unless one of them was closed.
4. The epoch of a group of the new protocol never goes back, whichever broker describes it.
5. In the end every record has been processed by every group, and all that the producer was acknowledged is there.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from oncelog.admin.groups import GroupDescription, describe_group
from tests.cluster.brokers import GROUPS, Cluster
from tests.cluster.group_members import CONSUMER, GROUPS_BY_NAME, ConfluentMember
from tests.cluster.groups_at_work import PARTITIONS, PAUSE_S, TOPIC, Auditor, Group, Member, ask_everybody
from tests.cluster.replicas import differing_replicas
from tests.cluster.strikes import KINDS, draw_away_s, drilled, strike
from tests.load import Load, check, create_topic
from tests.waiting import HANG_S, wait_until

MEMBERS: Final = 2
_SESSION_MS: Final = 6_000
_PATIENCE: Final = 20_000
"""Records acknowledged, of all partitions, in which a group has to commit on."""
_HANGING: Final = 4_000
"""Records in which a client that has request time-outs returns from any call."""
_DELAYS_S: Final = (0.0, 0.0, 0.005, 0.02, 0.1, 0.4)


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
    kills_member: bool = False
    """The member does not close: its process is killed."""
    brokers: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        end = "is killed" if self.kills_member else "closes"
        bounced = "" if self.bounced is None else f", {self.delay_s * 1000:g} ms after member {self.bounced} {end}"
        return f"{self.kind} {self.brokers}, coordinator of {self.group}{bounced}"


def drawn(chance: random.Random, groups: Sequence[str], kinds: Sequence[str], *, processes: bool = False) -> Round:
    """The next round of a seed; with ``processes`` most members that end are killed."""
    kind = chance.choice(kinds)
    bounced = chance.choice((None, *range(MEMBERS)))
    away_s = draw_away_s(chance, kind, (0.0, 0.5, 2.0))
    one = Round(chance.choice(groups), kind, bounced, chance.choice(_DELAYS_S), away_s, chance.random() < 0.3)
    one.kills_member = processes and bounced is not None and chance.random() < 0.7
    return one


class Drill:
    """A cluster, a producer, and the groups that follow it."""

    def __init__(self, cluster: Cluster, names: Sequence[str], session_ms: int, *, processes: bool = False) -> None:
        self.cluster = cluster
        bootstrap = cluster.bootstrap_servers
        self.load = Load(bootstrap, TOPIC, "producer", PARTITIONS, pause_s=PAUSE_S)
        self.groups = [Group(name) for name in names]
        self.members = {
            group.name: [
                Member(group, number, bootstrap, session_ms, as_process=processes) for number in range(MEMBERS)
            ]
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
                poll_s=PAUSE_S,
            )

    def _is_complete(self, group: Group) -> bool:
        members = self._described(group).members
        return len(members) == MEMBERS and all(member.partitions for member in members)

    def _described(self, group: Group) -> GroupDescription:
        response = self.cluster.ask(lambda client: describe_group(client, group.name))
        assert isinstance(response, GroupDescription)
        return response

    def settle(self) -> str:
        """Wait until every group has committed all that is acknowledged now; those that took more than a second."""
        steps = {member: member.steps for members in self.members.values() for member in members}
        marks = [len(item) for item in self.load.acknowledged]
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
            poll_s=PAUSE_S,
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

    def do(self, failure: Round) -> None:
        """One failure, healed, and everybody gone on."""
        group = next(group for group in self.groups if group.name == failure.group)
        before, assignments, replaced = self.assignment(group), group.assignments, group.replaced
        if failure.bounced is not None:
            member = self.members[failure.group][failure.bounced]
            (member.kill if failure.kills_member else member.bounce)()
            time.sleep(failure.delay_s)
        self._strike(failure)
        self.cluster.wait_healthy()
        slowest = self.settle()
        ask_everybody(self.auditors, self.groups)
        # In the new protocol the last member's word that it comes back may be lost with its coordinator.
        if group.kind.is_static and not (group.kind.strategy == CONSUMER and failure.bounced is not None):
            if self.assignment(group) != before:
                group.broken.append(f"{group.name}: was assigned {before}, and is {self.assignment(group)}")
            if failure.bounced is None and group.replaced == replaced and group.assignments != assignments:
                group.broken.append(f"{group.name}: was assigned partitions anew by another coordinator")
        print(f"      late: {slowest}" if slowest else "      all at once", flush=True)

    def assignment(self, group: Group) -> dict[str, tuple[str, ...]]:
        """Instance id → partitions, as the coordinator knows them; of a static group only."""
        if not group.kind.is_static:
            return {}
        members = self._described(group).members
        return {str(member.instance_id): tuple(sorted(map(str, member.partitions))) for member in members}

    def _strike(self, item: Round) -> None:
        first = self._end_coordinator(item)
        while item.is_twice and first.is_alive() and len(item.brokers) == 1:
            if self.cluster.coordinator(item.group, GROUPS) not in (-1, *item.brokers):
                self._end_coordinator(item).join()
            time.sleep(0.01)
        first.join()

    def _end_coordinator(self, item: Round) -> threading.Thread:
        """Returns when it has ended; the thread brings it back."""
        while (coordinator := self.cluster.coordinator(item.group, GROUPS)) not in self.cluster.ids:
            time.sleep(0.01)
        item.brokers.append(coordinator)
        struck = threading.Event()

        def end() -> None:
            try:
                strike(self.cluster, item.kind, [coordinator], item.away_s, struck.set)
            except Exception as failure:  # noqa: BLE001  # whatever it is, the drill has failed by it
                self.groups[0].broken.append(f"{item}: {failure}")
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
    processes: bool = False


def run(seed: int, rounds: int, directory: Path, options: Options) -> list[str]:
    """One drill in an empty directory; what is wrong."""
    chance = random.Random(seed)
    with Cluster(directory / "brokers") as cluster:
        create_topic(cluster.bootstrap_servers, TOPIC, PARTITIONS)
        cluster.wait_healthy()
        drill = Drill(cluster, options.groups, options.session_ms, processes=options.processes)
        try:
            with drill.running():
                began_s = time.monotonic()
                drill.begin()
                print(f"  all take part after {time.monotonic() - began_s:.2f} s", flush=True)
                for number in range(rounds):
                    one = drawn(chance, options.groups, options.kinds, processes=options.processes)
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
    yield from differing_replicas({id_: cluster.data_directory(id_) for id_ in cluster.ids}, TOPIC)
    cluster.start()
    cluster.wait_healthy()
    yield from check(cluster.bootstrap_servers, TOPIC, [drill.load])
    ends = [len(item) for item in drill.load.acknowledged]
    before = len(drill.broken())
    ask_everybody(drill.auditors, drill.groups)
    yield from drill.broken()[before:]
    for group in drill.groups:
        yield from group.unprocessed(ends)
        print(f"  {group.name}: {sum(map(len, group.processed))} records, {group.assignments} assignments", flush=True)
    print(f"  {drill.load.count} records, {sum(auditor.answers for auditor in drill.auditors)} answers of OffsetFetch")


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
    parser.add_argument("--processes", action="store_true", help="members are processes, and most that end are killed")
    given = parser.parse_args()
    options = Options(given.client or tuple(GROUPS_BY_NAME), given.kind or KINDS, given.session, given.processes)
    return drilled("groups", given.seed, lambda directory: run(given.seed, given.rounds, directory, options))


if __name__ == "__main__":
    sys.exit(main())
