"""A group of many clients is upgraded to the new protocol and back, one member after another, under load:
`python -m tests.cluster.rolling --members 20`.

The clients are kafka-python, librdkafka, aiokafka, franz-go, ours, and Apache Kafka's own; each is a process. On the
way some are killed and some are frozen for longer than their session lasts, at work on records that they have taken.
``--exactly-once``: each commits in transactions, together with what it makes of its records (`transactional_members`).
``--brokers 3``: coordinators of the group and of transactions are killed, stopped and frozen, too.
``--kafka 4.4.0``: with a broker of Apache Kafka.
``--from-release 0.1``: our brokers begin as those that are kept of a release (`tests/kept`). They are replaced one by
one by this tree's while the group is classic, and by the release's again while it is of the new protocol. Without
kafka-python, whose producer loses requests when coordinators are restarted (`TransactionalKafkaPythonMember`).

What must hold:
1. Every record that the producer was acknowledged is processed.
2. A member begins at an offset that is not less than one whose commit was acknowledged before, and OffsetFetch never
   answers less: no record is taken again that the group has committed, whatever a frozen member does when it goes on.
3. The group is of the new protocol when all members are, and classic again after them.
4. Exactly once: a reader at read_committed finds the result of each record, and once.
5. With brokers of two versions: every acknowledged record is stored once, in order; in the end replicas are the same
   bytes, and `oncelog log verify` and `oncelog audit` find nothing.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from oncelog.admin.groups import GroupDescription, describe_group
from oncelog.client.blocking import Client
from tests.cluster.brokers import GROUPS, PROPERTIES, TRANSACTIONS, Cluster
from tests.cluster.group_members import GROUPS_BY_NAME
from tests.cluster.groups_at_work import PAUSE_S, TOPIC, Auditor, Group, Member, ask_everybody
from tests.cluster.replicas import differing_replicas
from tests.cluster.strikes import KINDS, draw_away_s, drilled, strike
from tests.cluster.transactional_members import OUTPUT, OUTPUT_PARTITIONS
from tests.kept.findings import findings_in
from tests.kept.releases import program
from tests.load import Load, check, create_topic, read_to_end
from tests.peers.apache_kafka import ApacheKafka
from tests.waiting import HANG_S, wait_until

CLASSIC: Final = ("kafka-python", "confluent-range", "aiokafka", "go classic", "oncelog")
NEW: Final = ("confluent-consumer", "go consumer", "oncelog-consumer", "confluent-consumer")
SESSION_MS: Final = 3_000
_STRIKES_S: Final = (0.0, 0.0, 0.001, 0.003, 0.01, 0.03, 0.1)
"""After a member has taken records; a transaction is begun, gets offsets, and ends meanwhile."""
_UNTIL_TAKEN_SESSIONS: Final = 20
_ONE_BROKER: Final = {"default.replication.factor": "1", "min.insync.replicas": "1"}
_NOT_OF_KAFKA: Final = ("zookeeper.session.timeout.ms",)


@dataclass(frozen=True)
class Options:
    """The members of a drill, whose clients are those of ``classic`` and ``new`` in turn; ``java`` are programs that
    join the upgraded group and stay. ``command``: another program than `oncelog`; ``kafka``: a release of Apache Kafka
    instead of our broker; ``release``: one of ours that brokers come from and go back to."""

    members: int = 20
    java: Sequence[str] = ()
    classic: Sequence[str] = CLASSIC
    new: Sequence[str] = NEW
    is_exactly_once: bool = False
    session_ms: int = SESSION_MS
    brokers: int = 1
    command: Sequence[str] | None = None
    kafka: str | None = None
    release: str | None = None


class Host(Protocol):
    """The brokers of a drill."""

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def addresses(self) -> list[str]: ...

    def describe(self, group: str) -> object: ...

    def strike(self, group: str, chance: random.Random) -> None:
        """End the coordinator of a group or of a transaction, and bring it back."""

    def replace_brokers(self, release: str | None, chance: random.Random) -> None:
        """End the brokers one by one, and start each with the program of a release; None: with this tree's."""

    def broken(self) -> list[str]: ...


class Ours:
    """Our brokers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.bootstrap_servers = cluster.bootstrap_servers
        self.addresses = [cluster.address(broker_id) for broker_id in cluster.ids]

    def describe(self, group: str) -> object:
        return self._cluster.ask(lambda client: describe_group(client, group))

    def strike(self, group: str, chance: random.Random) -> None:
        cluster = self._cluster
        if len(cluster.ids) == 1:
            return
        key, kind = chance.choice(((group, GROUPS), (f"{group}-0", TRANSACTIONS)))
        how = chance.choice(KINDS)
        away_s = draw_away_s(chance, how, (0.0, 0.5))
        coordinator = cluster.coordinator(key, kind)
        if coordinator in cluster.ids:
            print(f"  {how} {coordinator}, coordinator of {key}", flush=True)
            strike(cluster, how, [coordinator], away_s)
            cluster.wait_healthy()

    def replace_brokers(self, release: str | None, chance: random.Random) -> None:
        cluster = self._cluster
        for broker_id in chance.sample(cluster.ids, len(cluster.ids)):
            how = chance.choice(("kill", "stop", "stop"))
            print(f"  {how} {broker_id}, which begins again as {release or 'this tree'}", flush=True)
            cluster.use(broker_id, program(release) if release else None)
            strike(cluster, how, [broker_id], 0)
            cluster.wait_healthy()

    def broken(self) -> list[str]:
        return self._cluster.ended_by_themselves()

    def stopped(self) -> list[str]:
        """Stop all brokers; the differences of their replicas, and unreadable batches."""
        cluster = self._cluster
        codes = [cluster.stop(broker_id) for broker_id in cluster.ids]
        if any(codes):
            return [f"exit codes after SIGTERM: {codes}"]
        places = {broker_id: cluster.data_directory(broker_id) for broker_id in cluster.ids}
        differences = [line for topic in (TOPIC, OUTPUT) for line in differing_replicas(places, topic)]
        return [*differences, *findings_in(*places.values())]


class OfApacheKafka:
    """One broker of Apache Kafka's, which nothing happens to."""

    def __init__(self, broker: ApacheKafka) -> None:
        self.bootstrap_servers = broker.bootstrap_servers
        self.addresses = [broker.bootstrap_servers]

    def describe(self, group: str) -> object:
        with Client(self.bootstrap_servers) as client:
            return describe_group(client, group)

    def strike(self, group: str, chance: random.Random) -> None:
        pass

    def replace_brokers(self, release: str | None, chance: random.Random) -> None:
        raise ValueError("a broker of Apache Kafka's is not replaced")

    def broken(self) -> list[str]:
        return []


class Rolling:
    """A producer, and the group."""

    def __init__(self, host: Host, options: Options, seed: int) -> None:
        self._host = host
        self._options = options
        self._chance = random.Random(seed)
        partitions = options.members + options.members // 4
        create_topic(host.bootstrap_servers, TOPIC, partitions)
        create_topic(host.bootstrap_servers, OUTPUT, OUTPUT_PARTITIONS)
        kind = GROUPS_BY_NAME["confluent-range"]
        self.group = Group("rolling", kind, partitions, is_transactional=options.is_exactly_once)
        self.load = Load(host.bootstrap_servers, TOPIC, "producer", partitions, pause_s=PAUSE_S)
        self.auditors = [Auditor(address, [self.group]) for address in host.addresses]
        classic = (options.classic[number % len(options.classic)] for number in range(options.members))
        self._members = [self._member(number, client) for number, client in enumerate(classic)]
        self._others: list[Member] = []
        self._frozen: list[threading.Thread] = []

    def _member(self, number: int, client: str) -> Member:
        servers = self._host.bootstrap_servers
        return Member(self.group, number, servers, self._options.session_ms, as_process=True, client=client)

    def start(self) -> None:
        for thread in (*self.auditors, *self._members):
            thread.start()
        self.load.start()
        self.load.wait_for_more()

    def roll(self, clients: Sequence[str]) -> None:
        """Replace one member after another by another client."""
        for number, member in enumerate(self._members):
            if number % 5 == 1:
                self._kill(member)
            elif number % 5 == 2:
                self._host.strike(self.group.name, self._chance)
            elif number % 5 == 3:
                self._freeze(self._members[:number])
            member.stop()
            successor = self._members[number] = self._member(number, clients[number % len(clients)])
            successor.start()
            time.sleep(self._chance.choice((0.0, 0.1, 0.3)))
        self._freeze(self._members)
        for thread in self._frozen:
            thread.join()

    def _may_strike(self, member: Member) -> bool:
        """See `TransactionalAiokafkaMember`: it could commit for a group that has thrown it out."""
        return not (self.group.is_transactional and member.client == "aiokafka")

    def _kill(self, member: Member) -> None:
        def kill() -> None:
            member.stop()
            member.kill()

        if self._may_strike(member):
            self._at_work(member, kill)

    def _freeze(self, members: Sequence[Member]) -> None:
        """Until its session is over and others have committed what it has taken: then it goes on with what is theirs.
        Not one that is about to be replaced, whose producer its successor would fence."""
        candidates = [member for member in members if self._may_strike(member)]
        if not candidates:
            return
        member = self._chance.choice(candidates)

        def freeze() -> None:
            self._at_work(member, member.freeze)
            try:
                time.sleep(1.5 * self._options.session_ms / 1000)
                taken = member.taken
                wait_until(
                    lambda: self.group.broken or self._has_committed(taken), f"{taken} after {member.name}", PAUSE_S
                )
            finally:
                member.thaw()

        self._frozen.append(threading.Thread(target=freeze))
        self._frozen[-1].start()

    def _has_committed(self, offsets: Mapping[int, int]) -> bool:
        committed = self.group.snapshot()
        return all(committed.get(partition, 0) >= offset for partition, offset in offsets.items())

    def _at_work(self, member: Member, action: Callable[[], None]) -> None:
        """Act once: shortly after the member has taken records, or when it has taken none for many sessions."""
        turn, is_done = threading.Lock(), threading.Event()

        def act() -> None:
            if turn.acquire(blocking=False):
                action()
                is_done.set()

        delay_s = self._chance.choice(_STRIKES_S)
        member.after_taking(act if delay_s == 0 else threading.Timer(delay_s, act).start)
        if not is_done.wait(_UNTIL_TAKEN_SESSIONS * self._options.session_ms / 1000):
            act()
        is_done.wait()

    def replace_brokers(self, release: str | None) -> None:
        self._host.replace_brokers(release, self._chance)
        self.load.wait_for_more()

    def add(self, clients: Sequence[str]) -> None:
        """Let members join beside the others."""
        for client in clients:
            self._others.append(self._member(len(self._members) + len(self._others), client))
            self._others[-1].start()

    def described(self) -> GroupDescription:
        response = self._host.describe(self.group.name)
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
        threads: list[Auditor | Member] = [*self.auditors, *self._members, *self._others]
        for thread in threads:
            thread.stop()
        for thread in threads:
            thread.join(HANG_S / 10)

    def check(self) -> list[str]:
        """Every broken promise."""
        ask_everybody(self.auditors, [self.group])
        ends = [len(item) for item in self.load.acknowledged]
        lines = [*self.group.broken, *self.group.unprocessed(ends), *self._host.broken()]
        if self._options.release:
            lines += check(self._host.bootstrap_servers, TOPIC, [self.load])
        return [*lines, *self._not_exactly_once(ends)] if self._options.is_exactly_once else lines

    def _not_exactly_once(self, ends: Sequence[int]) -> Iterator[str]:
        """Records without a committed result, and those with several."""
        settings = {"isolation.level": "read_committed"}
        messages = read_to_end(self._host.bootstrap_servers, OUTPUT, range(OUTPUT_PARTITIONS), settings)
        values = [(message.value() or b"").decode() for message in messages]
        counts = Counter(value.partition(" ")[0] for value in values)
        records = {f"{partition}:{offset}" for partition, end in enumerate(ends) for offset in range(end)}
        for text, names in (
            ("lost", records - counts.keys()),
            ("processed several times", {name for name, count in counts.items() if count > 1}),
            ("results of no record", counts.keys() - records),
        ):
            if names:
                shown = [value for value in values if value.partition(" ")[0] in names][:20]
                yield f"{len(names)} {text}: {sorted(names)[:10]} {shown}"
        print(f"  {counts.total()} results", flush=True)


@contextmanager
def host(directory: Path, options: Options) -> Iterator[Host]:
    """The brokers that a drill asks for, in an empty directory."""
    properties = {"group.consumer.session.timeout.ms": str(options.session_ms)}
    if options.kafka:
        own = {key: value for key, value in PROPERTIES.items() if key not in _NOT_OF_KAFKA}
        own |= {**_ONE_BROKER, **properties, "log.segment.bytes": "1073741824"}
        with ApacheKafka(directory / "kafka", properties=own, version=options.kafka) as broker:
            yield OfApacheKafka(broker)
        return
    properties |= _ONE_BROKER if options.brokers == 1 else {}
    place, count = directory / "brokers", options.brokers
    commands = {broker_id: program(options.release) for broker_id in range(1, count + 1)} if options.release else None
    with Cluster(place, count=count, properties=properties, command=options.command, commands=commands) as cluster:
        yield Ours(cluster)


def run(seed: int, directory: Path, options: Options) -> list[str]:
    """One drill in an empty directory; what is wrong."""
    with host(directory, options) as brokers:
        rolling = Rolling(brokers, options, seed)
        rolling.start()
        try:
            began_s = time.monotonic()
            for step, group_type in (("", "classic"), ("up", "consumer"), ("down", "classic")):
                if step:
                    rolling.roll(options.new if step == "up" else options.classic)
                if step == "up":
                    rolling.add(options.java)
                # A member of the new protocol that stays keeps the group in it.
                group_type = "consumer" if step and options.java else group_type
                rolling.settle(group_type)
                if options.release and step != "down":
                    rolling.replace_brokers(options.release if step else None)
                    rolling.settle(group_type)
                print(f"  {step or 'begun'} after {time.monotonic() - began_s:.1f} s", flush=True)
            rolling.load.stop()
            rolling.settle("consumer" if options.java else "classic")
        except TimeoutError as failure:
            return [str(failure), *rolling.group.broken]
        finally:
            rolling.stop()
        print(f"  {rolling.load.count} records, {rolling.group.repeated} taken again", flush=True)
        lines = rolling.check()
        return [*lines, *brokers.stopped()] if options.release and isinstance(brokers, Ours) else lines


def main() -> int:
    """Run the drill of a seed; 1 when something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="who is frozen, and the pauses")
    parser.add_argument("--members", type=int, default=20, help="members (default 20)")
    parser.add_argument("--java", action="append", default=[], metavar="'java VERSION PROTOCOL'", help="join, too")
    parser.add_argument("--exactly-once", action="store_true", help="members commit in transactions")
    parser.add_argument("--brokers", type=int, default=1, help="ours; of several some coordinators fail (default 1)")
    parser.add_argument("--kafka", metavar="RELEASE", help="with one broker of this release of Apache Kafka instead")
    parser.add_argument("--from-release", metavar="RELEASE", help="our brokers come from it and go back, as 0.1")
    given = parser.parse_args()
    options = Options(
        given.members,
        given.java,
        classic=[client for client in CLASSIC if client != "kafka-python"] if given.from_release else CLASSIC,
        is_exactly_once=given.exactly_once,
        brokers=given.brokers,
        kafka=given.kafka,
        release=given.from_release,
    )
    return drilled("rolling", given.seed, lambda directory: run(given.seed, directory, options))


if __name__ == "__main__":
    sys.exit(main())
