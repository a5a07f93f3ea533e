"""Transactions that are cut at each of their points: `python -m tests.cluster.cuts --seed 7 --rounds 40`.

Four copies (consume, transform, produce) run at once, each by another client. A round waits until the seed's client is
at the seed's point of a transaction, and there ends, stops or freezes who leads its coordinator, the partition that it
writes, the group's coordinator, or two of them. In the end an independent reader has to find each record of the source
exactly once and in order, up to what the group has committed, and all replicas the same.

`--secured`: TLS and logins between brokers and to clients. `--skew SECONDS`: the first broker's clock is behind by so
much and the last one's ahead. A coordinator counts the time of a transaction by its own clock, as in Apache Kafka:
where two are apart by more than the transactions' minute, it ends what another one has begun.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client
from tests.cluster.brokers import GROUPS, TRANSACTIONS, Cluster
from tests.cluster.committed import Servers, read_committed
from tests.cluster.cut_copies import POINTS, Copier, fill
from tests.cluster.replicas import differing_replicas
from tests.cluster.secured import Secured
from tests.cluster.strikes import KINDS, draw_away_s, drilled, strike
from tests.interop.consistency.copier import CLIENTS as COPIERS
from tests.interop.consistency.copying_client import COPY, GROUP, SOURCE
from tests.interop.faults.skewed import set_skew
from tests.peers.clients.foreign import GO_CLIENTS
from tests.peers.jars import KAFKA
from tests.waiting import HANG_S, wait_until

CLIENTS: Final = ("confluent", "aiokafka", "oncelog", "oncelog-aio")
"""Those that come with the tests; Java's client and franz-go can be named."""
VICTIMS: Final = (("transactions",), ("data",), ("groups",), ("transactions", "data"), ("transactions", "groups"))
_DELAYS_S: Final = (0.0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.03)
_EACH: Final = 40_000


@dataclass
class Cut:
    """One strike: at which point of whose transaction, to whom, and how."""

    client: str
    point: str
    victims: Sequence[str]
    kind: str
    delay_s: float
    away_s: float
    done: threading.Event = field(default_factory=threading.Event)
    brokers: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        delay = f" after {self.delay_s * 1000:g} ms" if self.point == "ending" else ""
        return f"{self.kind} {'+'.join(self.victims)} {self.brokers} at {self.client}/{self.point}{delay}"


class Drill:
    """A cluster, its copiers, and the cut that is due."""

    def __init__(self, cluster: Cluster, servers: Servers, clients: Sequence[str], seed: int) -> None:
        self.cluster = cluster
        self._due: Cut | None = None
        self._healing: list[threading.Thread] = []
        self.copiers = [
            Copier(servers, client, partition, _EACH, seed, self._at) for partition, client in enumerate(clients)
        ]

    def cut(self, cut: Cut) -> None:
        """Strike as soon as the client is there; returns when all is healed and every copier has gone on."""
        self._due = cut
        if not cut.done.wait(HANG_S):
            raise TimeoutError(f"never there: {cut}; {self.broken()}")
        for thread in self._healing:
            thread.join()
        self._healing.clear()
        before = {copier.client: copier.copied for copier in self.copiers}
        wait_until(
            lambda: self.broken() or all(copier.copied > before[copier.client] for copier in self.copiers),
            lambda: (
                f"all to copy on after {cut}: "
                f"{[(copier.client, copier.copied - before[copier.client], copier.aborted) for copier in self.copiers]}"
            ),
            poll_s=0.01,
        )

    def broken(self) -> list[str]:
        """Copiers that ended, brokers that did."""
        result = [line for copier in self.copiers for line in copier.broken]
        return result + self.cluster.ended_by_themselves()

    def _at(self, copier: Copier, point: str) -> None:
        cut = self._due
        if cut is None or cut.client != copier.client or cut.point != point:
            return
        self._due = None
        cut.brokers = sorted({self._leader(copier, victim) for victim in cut.victims})
        healing = threading.Thread(target=self._strike, args=(cut,))
        self._healing.append(healing)
        healing.start()
        if point != "ending":
            cut.done.wait()

    def _leader(self, copier: Copier, victim: str) -> int:
        while True:
            if victim == "data":
                leader = self.cluster.leader(COPY, copier.partition)
            elif victim == "transactions":
                leader = self.cluster.coordinator(copier.transactional_id, TRANSACTIONS)
            else:
                leader = self.cluster.coordinator(GROUP, GROUPS)
            if leader in self.cluster.ids:
                return leader
            time.sleep(0.01)

    def _strike(self, cut: Cut) -> None:
        if cut.point == "ending":
            time.sleep(cut.delay_s)
        strike(self.cluster, cut.kind, cut.brokers, cut.away_s, cut.done.set)


def missing(client: str, *, secured: bool) -> str | None:
    """Why a client cannot be used, if it cannot."""
    if client == "java":
        return KAFKA.missing() or (None if shutil.which("java") else "the Java client: java is not installed")
    if client == "franz-go":
        return GO_CLIENTS.missing() or ("the drill's franz-go has no TLS and no logins" if secured else None)
    return None


def drawn(chance: random.Random, clients: Sequence[str], kinds: Sequence[str]) -> Cut:
    """The next cut of a seed."""
    kind = chance.choice(kinds)
    away_s = draw_away_s(chance, kind, (0.0, 0.5, 2.0))
    return Cut(
        chance.choice(clients),
        chance.choice(POINTS),
        chance.choice(VICTIMS),
        kind,
        chance.choice(_DELAYS_S),
        away_s,
    )


def skewed_commands(seconds: int, directory: Path) -> Mapping[int, Sequence[str]]:
    """Commands of brokers 1 and 3, whose wall clocks are off; that which measures intervals is right."""
    results = {}
    for broker_id, by in ((1, -seconds), (3, seconds)):
        file = directory / f"skew-{broker_id}"
        set_skew(file, by * 10**9)
        results[broker_id] = [sys.executable, "-m", "tests.interop.faults.skewed", str(file)]
    return results


@dataclass(frozen=True)
class Options:
    """The surroundings of a drill."""

    clients: Sequence[str] = CLIENTS
    kinds: Sequence[str] = KINDS
    secured: bool = False
    skew_s: int = 0


def run(seed: int, rounds: int, directory: Path, options: Options) -> list[str]:
    """One drill in an empty directory; what is wrong."""
    chance = random.Random(seed)
    clients = options.clients
    security = Secured(directory) if options.secured else None
    commands = skewed_commands(options.skew_s, directory) if options.skew_s else None
    with Cluster(directory / "brokers", secured=security, commands=commands) as cluster:
        servers = Servers(cluster.bootstrap_servers, security.client if security else {})
        cluster.ask(lambda client: _create_topics(client, len(clients)))
        cluster.wait_healthy()
        fill(servers, len(clients), _EACH)
        drill = Drill(cluster, servers, clients, seed)
        for copier in drill.copiers:
            copier.start()
        try:
            for number in range(rounds):
                cut = drawn(chance, options.clients, options.kinds)
                began_s = time.monotonic()
                drill.cut(cut)
                print(f"  {number:3} {time.monotonic() - began_s:6.2f} s  {cut}", flush=True)
                if drill.broken():
                    break
        except TimeoutError as failure:
            return [str(failure), *drill.broken()]
        finally:
            for copier in drill.copiers:
                copier.stop()
        return [*_stopped(drill), *drill.broken(), *_compared(drill, servers, directory)]


def _create_topics(client: Client, partitions: int) -> None:
    for topic in (SOURCE, COPY):
        create_topic(client, NewTopic(topic, partitions))


def _stopped(drill: Drill) -> list[str]:
    for copier in drill.copiers:
        copier.join(HANG_S)
    return [f"{copier.client} does not end" for copier in drill.copiers if copier.is_alive()]


def _compared(drill: Drill, servers: Servers, directory: Path) -> list[str]:
    drill.cluster.wait_healthy()
    wrong = []
    for copier in drill.copiers:
        committed = read_committed(servers, COPY, copier.partition)
        print(
            f"  {copier.client}: {len(committed)} copied, {copier.instances} instances",
            f"    {copier.aborted.total()} aborted",
            *(f"    {count} × {reason}" for reason, count in copier.aborted.most_common(3)),
            *(f"    gave up {count} × {reason}" for reason, count in copier.gave_up.most_common(3)),
            sep="\n",
            flush=True,
        )
        if committed != list(range(len(committed))):
            first = next(index for index, number in enumerate(committed) if number != index)
            wrong.append(f"{copier.client}: at {first} stands {committed[max(0, first - 3) : first + 5]}")
        if len(committed) < copier.copied:
            wrong.append(f"{copier.client}: {copier.copied} acknowledged, {len(committed)} there")
    codes = [drill.cluster.stop(broker_id) for broker_id in drill.cluster.ids]
    if any(codes):
        wrong.append(f"exit codes after SIGTERM: {codes}")
    directories = {broker_id: drill.cluster.data_directory(broker_id) for broker_id in drill.cluster.ids}
    for topic in (SOURCE, COPY):
        wrong += differing_replicas(directories, topic)
    return wrong


def main() -> int:
    """Run the rounds of a seed; 1 when something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="which points, victims and delays")
    parser.add_argument("--rounds", type=int, default=20, help="cuts (default 20)")
    parser.add_argument(
        "--client", choices=COPIERS, action="append", help="one of the copies (default: those in Python)"
    )
    parser.add_argument("--kind", choices=KINDS, action="append", help="how it ends leaders (default: all)")
    parser.add_argument("--secured", action="store_true", help="SASL_SSL between brokers and to clients")
    parser.add_argument("--skew", type=int, default=0, metavar="SECONDS", help="by which two clocks are off")
    given = parser.parse_args()
    for client in given.client or ():
        if reason := missing(client, secured=given.secured):
            print(reason, file=sys.stderr)
            return 2
    options = Options(given.client or CLIENTS, given.kind or KINDS, given.secured, given.skew)
    return drilled("cuts", given.seed, lambda directory: run(given.seed, given.rounds, directory, options))


if __name__ == "__main__":
    sys.exit(main())
