"""A group of many clients is upgraded to the new protocol and back, one member after another, under load:
`python -m tests.cluster.rolling --members 20`.

The clients are kafka-python, librdkafka, aiokafka, franz-go, ours, and Apache Kafka's own; each is a process. On the
way some are killed and some are frozen for longer than their session lasts.

What must hold:
1. Every record that the producer was acknowledged is processed.
2. A member begins at an offset that is not less than one whose commit was acknowledged before, and OffsetFetch never
   answers less: no record is taken again that the group has committed, whatever a frozen member does when it goes on.
3. The group is of the new protocol when all members are, and classic again after them.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from oncelog.admin.groups import GroupDescription, describe_group
from tests.cluster.brokers import Cluster
from tests.cluster.group_members import GROUPS_BY_NAME
from tests.cluster.groups_at_work import PAUSE_S, TOPIC, Auditor, Group, Member, ask_everybody
from tests.cluster.strikes import drilled
from tests.load import Load, create_topic
from tests.waiting import HANG_S, wait_until

CLASSIC: Final = ("kafka-python", "confluent-range", "aiokafka", "go classic", "oncelog")
NEW: Final = ("confluent-consumer", "go consumer", "oncelog-consumer", "confluent-consumer")
SESSION_MS: Final = 3_000
_FROZEN_S: Final = 1.5 * SESSION_MS / 1000
_BROKER: Final = {
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
}


@dataclass(frozen=True)
class Options:
    """The clients of a drill; ``java`` are programs that join the upgraded group and stay."""

    members: int = 20
    java: Sequence[str] = ()


class Rolling:
    """One broker, a producer, and the group."""

    def __init__(self, cluster: Cluster, options: Options, seed: int) -> None:
        self._cluster = cluster
        self._chance = random.Random(seed)
        partitions = options.members + options.members // 4
        create_topic(cluster.bootstrap_servers, TOPIC, partitions)
        self.group = Group("rolling", GROUPS_BY_NAME["confluent-range"], partitions)
        self.load = Load(cluster.bootstrap_servers, TOPIC, "producer", partitions, pause_s=PAUSE_S)
        self.auditor = Auditor(cluster.address(1), [self.group])
        classic = (CLASSIC[number % len(CLASSIC)] for number in range(options.members))
        self._members = [self._member(number, client) for number, client in enumerate(classic)]
        self._others: list[Member] = []
        self._frozen: list[threading.Thread] = []

    def _member(self, number: int, client: str) -> Member:
        servers = self._cluster.bootstrap_servers
        return Member(self.group, number, servers, SESSION_MS, as_process=True, client=client)

    def start(self) -> None:
        for thread in (self.auditor, *self._members):
            thread.start()
        self.load.start()
        self.load.wait_for_more()

    def roll(self, clients: Sequence[str]) -> None:
        """Replace one member after another by another client."""
        for number, member in enumerate(self._members):
            if number % 5 == 1:
                member.stop()
                member.kill()
            elif number % 5 == 3:
                self._freeze(self._chance.choice(self._members))
            member.stop()
            successor = self._members[number] = self._member(number, clients[number % len(clients)])
            successor.start()
            time.sleep(self._chance.choice((0.0, 0.1, 0.3)))
        for thread in self._frozen:
            thread.join()

    def _freeze(self, member: Member) -> None:
        def freeze() -> None:
            member.freeze()
            time.sleep(_FROZEN_S)
            member.thaw()

        self._frozen.append(threading.Thread(target=freeze))
        self._frozen[-1].start()

    def add(self, clients: Sequence[str]) -> None:
        """Let members join beside the others."""
        for client in clients:
            self._others.append(self._member(len(self._members) + len(self._others), client))
            self._others[-1].start()

    def described(self) -> GroupDescription:
        response = self._cluster.ask(lambda client: describe_group(client, self.group.name))
        assert isinstance(response, GroupDescription)
        return response

    def settle(self, group_type: str) -> None:
        """Wait until the group is of a type, complete, and has committed all that is acknowledged now."""
        marks = [len(item) for item in self.load.acknowledged]
        count = len(self._members) + len(self._others)

        def is_settled() -> bool:
            if self.group.broken or any(
                self.group.acknowledged.get(partition, 0) < mark for partition, mark in enumerate(marks)
            ):
                return bool(self.group.broken)
            described = self.described()
            return (described.group_type, described.state, len(described.members)) == (group_type, "Stable", count)

        wait_until(
            is_settled,
            lambda: f"a {group_type} group of {count}: {marks}, {self.group.acknowledged}, {self.described()}",
            poll_s=PAUSE_S,
        )

    def stop(self) -> None:
        self.load.stop()
        threads: list[Auditor | Member] = [self.auditor, *self._members, *self._others]
        for thread in threads:
            thread.stop()
        for thread in threads:
            thread.join(HANG_S / 10)

    def check(self) -> list[str]:
        """Every broken promise."""
        ask_everybody([self.auditor], [self.group])
        ends = [len(item) for item in self.load.acknowledged]
        return [*self.group.broken, *self.group.unprocessed(ends), *self._cluster.ended_by_themselves()]


def run(seed: int, directory: Path, options: Options) -> list[str]:
    """One drill in an empty directory; what is wrong."""
    with Cluster(directory / "brokers", count=1, properties=_BROKER) as cluster:
        rolling = Rolling(cluster, options, seed)
        rolling.start()
        try:
            began_s = time.monotonic()
            for step, group_type in (("", "classic"), ("up", "consumer"), ("down", "classic")):
                if step:
                    rolling.roll(NEW if step == "up" else CLASSIC)
                if step == "up":
                    rolling.add(options.java)
                # A member of the new protocol that stays keeps the group in it.
                rolling.settle("consumer" if step and options.java else group_type)
                print(f"  {step or 'begun'} after {time.monotonic() - began_s:.1f} s", flush=True)
            rolling.load.stop()
            rolling.settle("consumer" if options.java else "classic")
        except TimeoutError as failure:
            return [str(failure), *rolling.group.broken]
        finally:
            rolling.stop()
        print(f"  {rolling.load.count} records, {rolling.group.repeated} taken again", flush=True)
        return rolling.check()


def main() -> int:
    """Run the drill of a seed; 1 when something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="who is frozen, and the pauses")
    parser.add_argument("--members", type=int, default=20, help="members (default 20)")
    parser.add_argument("--java", action="append", default=[], metavar="'java VERSION PROTOCOL'", help="join, too")
    given = parser.parse_args()
    options = Options(given.members, java=given.java)
    return drilled("rolling", given.seed, lambda directory: run(given.seed, directory, options))


if __name__ == "__main__":
    sys.exit(main())
