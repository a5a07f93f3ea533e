"""A share group under load while brokers and members are killed and frozen, leave and join, and leaders move.

`python -m tests.cluster.share_drill --brokers 3 --members 6 --minutes 2 --seed 1`; members are ours, `--peers` adds
those of the Java client, librdkafka and franz-go by turns. `tests.cluster.share_members` has what must hold. At the
end the group takes all that is stored, a member of each kind joins afresh and must receive nothing that has ended, the
lag is 0, and the replicas of the topic and of `__share_group_state` are the same bytes.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from oncelog.admin.configs import ResourceType, alter_configs
from oncelog.admin.share_groups import share_offsets
from oncelog.client.blocking import Client
from oncelog.client.errors import ClientError
from tests.cluster.brokers import Cluster
from tests.cluster.replicas import differing_replicas
from tests.cluster.share_members import Ledger, Member, Place
from tests.cluster.strikes import KINDS as STRIKES
from tests.cluster.strikes import draw_away_s, drilled, strike
from tests.load import Load, check, create_topic, read_to_end, read_topic
from tests.peers.clients.share_member import KINDS as PEERS
from tests.waiting import wait_until

TOPIC: Final = "jobs"
DEAD: Final = "dlq.jobs"
GROUP: Final = "workers"
STATE: Final = "__share_group_state"
PARTITIONS: Final = 4
LIMIT: Final = 10
LOCK_MS: Final = 3000
SESSION_MS: Final = 5000
PROPERTIES: Final = {
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "50",
    "offsets.topic.replication.factor": "3",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": str(SESSION_MS),
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "500",
}
_REPLICATION: Final = (
    "default.replication.factor",
    "min.insync.replicas",
    "offsets.topic.replication.factor",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
)
_ONE_BROKER: Final = dict.fromkeys(_REPLICATION, "1")
_PAUSE_S: Final = 0.02
_BETWEEN_S: Final = (0.2, 3.0)
_FROZEN_S: Final = (1.0, 1.5 * LOCK_MS / 1000, 1.5 * SESSION_MS / 1000)
_QUIET_POLLS: Final = 10
_SHOWN: Final = 20
_FAULTS: Final = {"broker": 4, "kill": 3, "freeze": 3, "replace": 2}
_DEAD_PARTITION, _DEAD_OFFSET = "__dlq.errors.partition", "__dlq.errors.offset"


@dataclass(frozen=True)
class Options:
    """Participants and duration."""

    brokers: int = 3
    members: int = 6
    seconds: float = 60.0
    clients: Sequence[str] = ("oncelog",)


class Drill:
    """A producer, the group, and what happens to both."""

    def __init__(self, cluster: Cluster, options: Options, seed: int) -> None:
        self._cluster = cluster
        self._options = options
        self._chance = random.Random(seed)
        self._seed = seed
        self._joined = 0
        self.ledger = Ledger(LIMIT)
        self.struck: Counter[str] = Counter()
        self.members: list[Member] = []
        self.left: list[Member] = []
        self._thawing: list[threading.Thread] = []
        for topic in (TOPIC, DEAD):
            create_topic(cluster.bootstrap_servers, topic, PARTITIONS)
        with Client(cluster.bootstrap_servers) as client:
            alter_configs(client, ResourceType.TOPIC, DEAD, change={"errors.deadletterqueue.group.enable": "true"})
            change = {
                "share.auto.offset.reset": "earliest",
                "share.record.lock.duration.ms": str(LOCK_MS),
                "share.delivery.count.limit": str(LIMIT),
                "errors.deadletterqueue.topic.name": DEAD,
            }
            alter_configs(client, ResourceType.GROUP, GROUP, change=change)
        self.load = Load(cluster.bootstrap_servers, TOPIC, "producer", PARTITIONS, pause_s=_PAUSE_S)

    def start(self) -> None:
        self.members = [self._join() for _ in range(self._options.members)]
        self.load.start()
        wait_until(lambda: self.ledger.broken or all(member.taken for member in self.members), self._standings)

    def _join(self) -> Member:
        kind = self._options.clients[self._joined % len(self._options.clients)]
        name = f"{kind}-{self._joined}"
        seed = f"{self._seed}/{name}"
        member = Member(name, kind, self._cluster.bootstrap_servers, GROUP, TOPIC, self.ledger, seed)
        member.start()
        self._joined += 1
        return member

    def _standings(self) -> str:
        return f"records for all members: {[(member.name, member.taken) for member in self.members]}"

    def strike(self) -> None:
        """One fault after another until the time is over or something is broken."""
        until_s = time.monotonic() + self._options.seconds
        while time.monotonic() < until_s and not self.ledger.broken:
            (fault,) = self._chance.choices(list(_FAULTS), list(_FAULTS.values()))
            index = self._chance.randrange(len(self.members))
            if fault == "broker":
                self._strike_broker()
            elif fault == "freeze":
                self._freeze(self.members[index])
            else:
                self._replace(index, is_killed=fault == "kill")
            time.sleep(self._chance.uniform(*_BETWEEN_S))
        for thread in self._thawing:
            thread.join()

    def _strike_broker(self) -> None:
        """The leader of a partition of the topic or of the states: leaders move whenever it goes and comes back."""
        topic = self._chance.choice((TOPIC, STATE))
        how = self._chance.choice(STRIKES)
        leader = self._cluster.leader(topic, self._chance.randrange(PARTITIONS))
        if leader in self._cluster.ids:
            self.struck[f"broker {how}"] += 1
            print(f"  {how} {leader}, which leads a partition of {topic}", flush=True)
            strike(self._cluster, how, [leader], draw_away_s(self._chance, how, (0.0, 1.0)))
            self._cluster.wait_healthy()
        self.ledger.broken += self._cluster.ended_by_themselves()

    def _freeze(self, member: Member) -> None:
        self.struck["member freeze"] += 1
        seconds = self._chance.choice(_FROZEN_S)
        print(f"  freeze {member.name} for {seconds:.1f} s", flush=True)
        member.client.freeze()
        timer = threading.Timer(seconds, member.client.thaw)
        timer.start()
        self._thawing.append(timer)

    def _replace(self, index: int, *, is_killed: bool) -> None:
        member = self.members[index]
        how = "kill" if is_killed else "leave"
        self.struck[f"member {how}"] += 1
        print(f"  {how} {member.name}", flush=True)
        if is_killed:
            member.strike()
        else:
            member.stop()
        self.left.append(member)
        self.members[index] = self._join()

    def settle(self) -> list[Place]:
        """Stop the load and wait until the group has taken all that is stored; its places."""
        self.load.stop()
        self._cluster.wait_healthy()
        read = read_topic(self._cluster.bootstrap_servers, TOPIC, PARTITIONS)
        stored = [Place(partition, record.offset) for partition, records in enumerate(read) for record in records]
        wait_until(
            lambda: self.ledger.broken or all(lag == 0 for lag in self._lags()),
            lambda: f"a lag of 0: {self._lags()}, open: {self.ledger.open(stored)[:20]}",
            poll_s=0.2,
        )
        for member in (*self.members, *self.left):
            member.stop()
        for member in (*self.members, *self.left):
            member.join()
        return stored

    def _lags(self) -> list[int | None]:
        with Client(self._cluster.bootstrap_servers) as client:
            return [row.lag for row in share_offsets(client, GROUP)]

    def join_afresh(self) -> None:
        """A member of each kind polls what the others have left: nothing."""
        members = [self._join() for _ in self._options.clients]
        for member in members:
            for _ in range(_QUIET_POLLS):
                member.is_quiet.clear()
                wait_until(lambda member=member: self.ledger.broken or member.is_quiet.is_set(), member.name)  # type: ignore[misc]
            member.stop()
        for member in members:
            member.join()
            if member.taken:
                self.ledger.broken.append(f"{member.taken} records for {member.name} although the lag was 0")

    def dead_letters(self) -> set[Place]:
        """The records that the dead-letter topic names."""
        places = set()
        for message in read_to_end(self._cluster.bootstrap_servers, DEAD, range(PARTITIONS)):
            headers = {header[0]: header[1] for header in message.headers() or []}
            places.add(Place(int(headers[_DEAD_PARTITION]), int(headers[_DEAD_OFFSET])))
        return places

    def report(self, stored: Sequence[Place], dead: set[Place]) -> None:
        ledger = self.ledger
        kinds = Counter(end.kind for end in ledger.ended.values())
        print(f"  {len(stored)} records: {dict(kinds)}, {len(ledger.unanswered)} without an answer, {len(dead)} dead")
        print(f"  deliveries by count: {dict(sorted(ledger.deliveries.items()))}, {ledger.late} late")
        print(f"  refused: {dict(ledger.refused)}")
        print(f"  faults: {dict(self.struck)}, {self._joined} members", flush=True)


def run(seed: int, directory: Path, options: Options) -> list[str]:
    """One drill in an empty directory; what is wrong."""
    properties = PROPERTIES | (_ONE_BROKER if options.brokers == 1 else {})
    with Cluster(directory / "brokers", count=options.brokers, properties=properties) as cluster:
        drill = Drill(cluster, options, seed)
        try:
            drill.start()
            drill.strike()
            stored = drill.settle()
            drill.join_afresh()
            dead = drill.dead_letters()
        except (AssertionError, TimeoutError, RuntimeError, ClientError) as failure:
            return [repr(failure), *drill.ledger.broken[:_SHOWN]]
        finally:
            drill.load.stop()
            for member in (*drill.members, *drill.left):
                member.client.kill()
        drill.report(stored, dead)
        # A drill that is broken has ended early: what it left is not lost.
        lines = drill.ledger.broken[:_SHOWN] or list(drill.ledger.lost(stored, dead))[:_SHOWN]
        lines += [*check(cluster.bootstrap_servers, TOPIC, [drill.load]), *cluster.ended_by_themselves()]
        codes = [cluster.stop(broker_id) for broker_id in cluster.ids]
        places = {broker_id: cluster.data_directory(broker_id) for broker_id in cluster.ids}
        lines += [f"exit codes after SIGTERM: {codes}"] if any(codes) else []
        return [*lines, *(line for topic in (TOPIC, STATE) for line in differing_replicas(places, topic))]


def main() -> int:
    """Run the drill of a seed; 1 when something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="the faults, and what members acknowledge")
    parser.add_argument("--brokers", type=int, default=3, help="brokers (default 3)")
    parser.add_argument("--members", type=int, default=6, help="members (default 6)")
    parser.add_argument("--minutes", type=float, default=1.0, help="time of the faults (default 1)")
    parser.add_argument("--peers", action="store_true", help="members of other clients, too")
    given = parser.parse_args()
    clients = ("oncelog", *PEERS) if given.peers else ("oncelog",)
    options = Options(given.brokers, given.members, given.minutes * 60, clients)
    return drilled("share_drill", given.seed, lambda directory: run(given.seed, directory, options))


if __name__ == "__main__":
    sys.exit(main())
