"""Two clusters and mirrors as processes, under load, while all of them are killed and frozen; then both sides compare.

`python -m tests.interop.mirror.drill --seed 7 --rounds 20 --mirrors 2` runs a long one by hand. Writers at the source
send numbered records in transactions, of which some are aborted. In the end every partition of the copy has to be what
a reader at read_committed sees at the source, in order, and every group's translated offset has to leave exactly what
the group had not read.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client, ClientConfig, Committed, FetchSettings
from oncelog.client.blocking.transactions import TransactionalProducer, TransactionSettings
from oncelog.client.errors import ClientError
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.programs.group import commit_offsets, committed_offsets
from tests.peers.oncelog_serve import OncelogServe
from tests.waiting import wait_until

TOPIC: Final = "orders"
COPY: Final = "a.orders"
PARTITIONS: Final = 4
GROUPS: Final = 3
_CONFIG: Final = ClientConfig(retry_backoff_ms=20, retry_backoff_max_ms=200, retry_timeout_ms=60_000)


class Writer(threading.Thread):
    """Sends numbered records in transactions, some of them aborted, through whatever happens to the broker."""

    def __init__(self, bootstrap: str, number: int, seed: int) -> None:
        super().__init__(daemon=True)
        self._servers = bootstrap
        self._number = number
        self._random = random.Random(f"{seed}/{number}")
        self._ending = threading.Event()
        self.transactions = 0

    def end(self) -> None:
        """Stop after the transaction under way, and wait for that."""
        self._ending.set()
        self.join()

    def run(self) -> None:
        while not self._ending.is_set():
            try:
                with Client(self._servers, config=_CONFIG) as client:
                    self._write(client)
            except ClientError:
                time.sleep(0.05)

    def _write(self, client: Client) -> None:
        settings = TransactionSettings(f"writer-{self._number}", timeout_ms=10_000)
        with TransactionalProducer(client, settings) as producer:
            producer.initialize()
            while not self._ending.is_set():
                producer.begin()
                for index in range(self._random.randint(1, 40)):
                    value = f"{self._number}:{self.transactions}:{index}".encode() * self._random.choice((1, 1, 50))
                    producer.send(TOPIC, value, partition=self._random.randrange(PARTITIONS))
                if self._random.random() < 0.2:
                    producer.flush()
                    producer.abort()
                else:
                    producer.commit()
                self.transactions += 1


class Mirrors:
    """Instances of `oncelog mirror`, started again when they end."""

    def __init__(self, count: int, options: Sequence[str], directory: Path) -> None:
        self._command = [sys.executable, "-m", "oncelog", "mirror", *options]
        self._directory = directory
        self._children: list[subprocess.Popen[bytes] | None] = [None] * count
        self.starts = 0

    def start(self) -> None:
        """Start those that do not run."""
        for number, child in enumerate(self._children):
            if child is None or child.poll() is not None:
                with (self._directory / f"mirror-{number}.log").open("ab") as log:
                    command = [*self._command, "--instance", f"i{number}"]
                    self._children[number] = subprocess.Popen(command, stdout=log, stderr=log)
                self.starts += 1

    def kill(self, number: int) -> None:
        """End one, without a warning."""
        child = self._children[number]
        if child is not None:
            child.kill()
            child.wait()

    def signal(self, number: int, signals: signal.Signals) -> None:
        """Send one a signal."""
        child = self._children[number]
        if child is not None and child.poll() is None:
            child.send_signal(signals)

    def end(self) -> list[int]:
        """Ask all to end; their exit codes."""
        for number in range(len(self._children)):
            self.signal(number, signal.SIGTERM)
        return [child.wait() for child in self._children if child is not None]


@dataclass
class Outcome:
    """The result of a drill."""

    records: int = 0
    faults: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    exits: list[int] = field(default_factory=list)
    starts: int = 0


def run(
    seed: int,
    rounds: int,
    mirrors: int,
    directory: Path,
    source: Any = None,
    target: Any = None,
    longest_freeze_s: float = 1,
) -> Outcome:
    """One drill. ``source`` and ``target`` are brokers as processes, not started; ours if None. A mirror that is frozen
    for longer than its session (10 s) comes back as a zombie."""
    chance = random.Random(seed)
    source = source or OncelogServe(directory / "source", properties={"log.sync.policy": "none"})
    target = target or OncelogServe(directory / "target", properties={"log.sync.policy": "none"})
    outcome = Outcome()
    with source, target:
        with Client(source.bootstrap_servers, config=_CONFIG) as client:
            create_topic(client, NewTopic(TOPIC, PARTITIONS))
        options = ["--source", f"a={source.bootstrap_servers}", "--target", target.bootstrap_servers]
        options += [
            "--topics",
            "orders",
            "--groups",
            "g.*",
            "--commit-interval-ms",
            "50",
            "--refresh-interval-ms",
            "300",
        ]
        options += ["--groups-interval-ms", "200", "--json", "--interval", "1"]
        running = Mirrors(mirrors, options, directory)
        writers = [Writer(source.bootstrap_servers, number, seed) for number in range(2)]
        for writer in writers:
            writer.start()
        running.start()
        try:
            for _ in range(rounds):
                _copied_more(target, 200)
                outcome.faults.append(_strike(chance, source, target, running, mirrors, longest_freeze_s))
                running.start()
        finally:
            for writer in writers:
                writer.end()
        _groups_read_on(chance, source)
        running.start()
        _caught_up(source, target)
        outcome.exits = running.end()
        outcome.starts = running.starts
        _compare(source, target, outcome)
    return outcome


def _strike(
    chance: random.Random, source: Any, target: Any, running: Mirrors, mirrors: int, longest_freeze_s: float
) -> str:
    """Do one bad thing."""
    choice = chance.choice(["source", "target", "mirror", "mirror", "freeze", "both"])
    number = chance.randrange(mirrors)
    if choice in ("source", "both"):
        source.kill()
    if choice in ("target", "both"):
        target.kill()
    if choice in ("mirror", "both"):
        running.kill(number)
    if choice in ("source", "both"):
        source.start()
    if choice in ("target", "both"):
        target.start()
    if choice == "freeze":
        running.signal(number, signal.SIGSTOP)
        time.sleep(chance.uniform(0, longest_freeze_s))
        running.signal(number, signal.SIGCONT)
    return choice


def _count(broker: Any, topic: str) -> int:
    try:
        with Client(broker.bootstrap_servers, config=_CONFIG) as client:
            at = {TopicPartition(TopicName(topic), number): -1 for number in range(PARTITIONS)}
            return sum(offset.offset for offset in client.list_offsets(at, read_committed=True).values())
    except ClientError:
        return 0


def _copied_more(target: Any, by: int) -> None:
    """Wait until the copy has grown: a fault that meets nobody at work proves nothing."""
    before = _count(target, COPY)
    wait_until(lambda: _count(target, COPY) >= before + by, "the mirror, which has to find its way again", poll_s=0.05)


def _groups_read_on(chance: random.Random, source: Any) -> None:
    """Groups stand somewhere, each in every partition."""
    with Client(source.bootstrap_servers, config=_CONFIG) as client:
        for group in range(GROUPS):
            ends = client.list_offsets({TopicPartition(TopicName(TOPIC), n): -1 for n in range(PARTITIONS)})
            at = {
                p: Committed(found.offset if group == 0 else chance.randint(0, found.offset))
                for p, found in ends.items()
            }
            commit_offsets(client, f"g{group}", at)


def _caught_up(source: Any, target: Any) -> None:
    """Wait until the copy has as many records as its source, and every group an offset there."""

    def is_there() -> bool:
        with Client(target.bootstrap_servers, config=_CONFIG) as client:
            expected = [TopicPartition(TopicName(COPY), number) for number in range(PARTITIONS)]
            if any(len(committed_offsets(client, f"g{group}", expected)) < PARTITIONS for group in range(GROUPS)):
                return False
        return all(len(_values(target, COPY, n)) >= len(_values(source, TOPIC, n)) for n in range(PARTITIONS))

    wait_until(is_there, "the last records and groups at the target", poll_s=0.5)


def _values(broker: Any, topic: str, partition: int, start: int | None = None) -> list[bytes]:
    with Client(broker.bootstrap_servers, config=_CONFIG) as client:
        at = TopicPartition(TopicName(topic), partition)
        end = client.list_offsets({at: -1}, read_committed=True)[at].offset
        first = 0 if start is None else start
        if first >= end:
            return []
        fetched = client.fetch({at: first}, until={at: end}, settings=FetchSettings(read_committed=True))
        return [record.value or b"" for item in fetched for record in read_fetched(item, read_committed=True)]


def _compare(source: Any, target: Any, outcome: Outcome) -> None:
    for number in range(PARTITIONS):
        here, present = _values(source, TOPIC, number), _values(target, COPY, number)
        outcome.records += len(here)
        if here != present:
            first = next((i for i, (a, b) in enumerate(zip(here, present, strict=False)) if a != b), "the end")
            outcome.wrong.append(f"partition {number}: {len(here)} records, {len(present)} copies, differ at {first}")
        for group in range(GROUPS):
            with Client(source.bootstrap_servers, config=_CONFIG) as client:
                at = committed_offsets(client, f"g{group}")[TopicPartition(TopicName(TOPIC), number)].offset
            with Client(target.bootstrap_servers, config=_CONFIG) as client:
                moved = committed_offsets(client, f"g{group}")[TopicPartition(TopicName(COPY), number)].offset
            if _values(source, TOPIC, number, at) != _values(target, COPY, number, moved):
                outcome.wrong.append(f"partition {number}: group g{group} at {at} was moved to {moved}")


def main() -> int:
    """1 when something is wrong; then the directory is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--mirrors", type=int, default=1)
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    directory = options.directory or Path(tempfile.mkdtemp(prefix="oncelog-mirror-"))
    directory.mkdir(exist_ok=True)
    freeze_s = 1 if options.mirrors == 1 else 14
    outcome = run(options.seed, options.rounds, options.mirrors, directory, longest_freeze_s=freeze_s)
    print(f"seed {options.seed}: {outcome.records:,} records, {len(outcome.faults)} faults {outcome.faults}")
    print(f"{outcome.starts} starts, exit codes {outcome.exits}")
    print(*outcome.wrong, sep="\n")
    print(f"kept: {directory}")
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
