"""Transactional copy under fire: copiers and the broker are killed at random moments, then the history is checked.

A reader follows the copy at read_committed all the while; at the end everything is drained, and what was read, drained
and committed has to agree: every record of the source copied once, whole transactions, no aborted ones.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from oncelog.sim.checkers.anomalies import check
from oncelog.sim.checkers.history import History, Outcome, Poll, Seen, Transaction, Write
from tests.interop.consistency.copier import COPY, COPY_PARTITIONS, GROUP, QUICK, SOURCE, START_AGAIN
from tests.peers.oncelog_serve import OncelogServe

_DRAIN_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True)
class Plan:
    """How much, and how rough."""

    seed: int
    events: int
    sources: int = 2
    """Partitions of the source, each with a copier of its own."""
    pause_s: tuple[float, float] = (0.1, 0.6)
    """Between two kills."""
    broker_share: float = 0.5
    """Of kills that hit the broker."""
    timeout_s: float = 3600.0
    properties: Mapping[str, str] | None = None

    @property
    def each(self) -> int:
        """Events in a source partition."""
        return self.events // self.sources


@dataclass
class Outcomes:
    """What a run found."""

    anomalies: dict[str, list[str]]
    kills: Counter[str]
    history: History
    elapsed_s: float
    failures: list[str]

    def summary(self) -> str:
        """One line."""
        ends = Counter(transaction.outcome.value for transaction in self.history.transactions)
        polled = sum(len(poll.records) for poll in self.history.polls)
        read = f"{polled} records read meanwhile"
        return f"{dict(self.kills)} kills, transactions {dict(ends)}, {read}, {self.elapsed_s:.1f} s"


class Reader:
    """Follows the copy at read_committed, over broker restarts, and remembers every poll."""

    def __init__(self, bootstrap: str) -> None:
        self.polls: list[Poll] = []
        self._bootstrap = bootstrap
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Follow until stopped."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        consumer = _consumer(self._bootstrap, "reader")
        consumer.assign([TopicPartition(COPY, index, OFFSET_BEGINNING) for index in range(COPY_PARTITIONS)])
        while not self._stopping.is_set():
            found: dict[int, list[Seen]] = {}
            for message in consumer.consume(1000, 0.1):
                if message.error() is None:
                    seen = Seen(message.offset() or 0, (message.value() or b"").decode())
                    found.setdefault(message.partition() or 0, []).append(seen)
            now = time.monotonic_ns()
            self.polls += [Poll("reader", partition, now, records) for partition, records in found.items()]
        consumer.close()


class Copiers:
    """One process a source partition, started again until it has copied everything."""

    def __init__(self, plan: Plan, bootstrap: str, directory: Path) -> None:
        self._plan = plan
        self._bootstrap = bootstrap
        self._directory = directory
        self._instances: Counter[int] = Counter()
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self.failures: list[str] = []

    def start(self) -> None:
        """All of them."""
        for partition in range(self._plan.sources):
            self._start(partition)

    def _start(self, partition: int) -> None:
        self._instances[partition] += 1
        instance = self._instances[partition]
        journal = self._directory / f"copier-{partition}-{instance:04}.jsonl"
        arguments = [self._bootstrap, partition, self._plan.each, instance, journal, self._plan.seed]
        command = [sys.executable, "-m", "tests.interop.consistency.copier", *map(str, arguments)]
        self._children[partition] = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def kill(self, chance: random.Random) -> None:
        """SIGKILL one and start it again."""
        partition = chance.choice(sorted(self._children))
        self._children[partition].kill()
        self._children[partition].wait()
        self._start(partition)

    def look(self) -> bool:
        """Start again who gave up; whether anybody is still copying."""
        for partition, child in list(self._children.items()):
            code = child.poll()
            if code == START_AGAIN:
                self._start(partition)
            elif code is not None:
                del self._children[partition]
                if code:
                    self.failures.append(f"copier {partition} ended with {code}")
        return bool(self._children)

    def stop(self) -> None:
        """End who is left."""
        for child in self._children.values():
            child.kill()
            child.wait()

    def transactions(self) -> Iterator[Transaction]:
        """What the journals say."""
        for path in sorted(self._directory.glob("copier-*.jsonl")):
            yield from read_journal(path)


def read_journal(path: Path) -> Iterator[Transaction]:
    """The transactions of one instance, in order."""
    found: dict[str, Transaction] = {}
    offsets: dict[str, int] = {}
    for line in path.read_bytes().splitlines():
        entry: dict[str, Any] = json.loads(line)
        if "begin" in entry:
            name = entry["begin"]
            writes = [Write(partition, value) for partition, value in entry["writes"]]
            following = {entry["source"]: entry["following"]}
            found[name] = Transaction(name, path.stem, writes, Outcome.ABORTED, None, following)
        elif "ending" in entry and entry["commit"]:
            found[entry["ending"]] = replace(found[entry["ending"]], outcome=Outcome.UNKNOWN, ending_at=entry["at"])
        elif "ended" in entry:
            outcome = Outcome.COMMITTED if entry["commit"] else Outcome.ABORTED
            found[entry["ended"]] = replace(found[entry["ended"]], outcome=outcome)
        elif "wrote" in entry:
            offsets[entry["wrote"]] = entry["offset"]
    for transaction in found.values():
        known = [write._replace(offset=offsets.get(write.value)) for write in transaction.writes]
        yield replace(transaction, writes=known)


def run(plan: Plan, directory: Path) -> Outcomes:
    """The whole of it, in an empty directory."""
    started = time.monotonic()
    chance = random.Random(plan.seed)
    broker = OncelogServe(directory / "broker", properties=plan.properties)
    with broker:
        _fill(broker.bootstrap_servers, plan)
        reader, copiers = Reader(broker.bootstrap_servers), Copiers(plan, broker.bootstrap_servers, directory)
        reader.start()
        try:
            copiers.start()
            kills = _harass(plan, broker, copiers, reader, chance)
            drained = {index: list(drain(broker.bootstrap_servers, index)) for index in range(COPY_PARTITIONS)}
            committed = _committed(broker.bootstrap_servers, plan.sources)
        finally:
            copiers.stop()
            reader.stop()
    history = History(list(copiers.transactions()), reader.polls, drained, committed)
    anomalies = check(history) | _uneven_copies(history, plan)
    return Outcomes(anomalies, kills, history, time.monotonic() - started, copiers.failures)


def _harass(plan: Plan, broker: OncelogServe, copiers: Copiers, reader: Reader, chance: random.Random) -> Counter[str]:
    """Kill until all is copied; never twice without progress, or nothing would be proved, and nothing copied."""
    kills: Counter[str] = Counter()
    deadline = time.monotonic() + plan.timeout_s
    due, seen = time.monotonic(), 0
    while copiers.look():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not copied after {plan.timeout_s} s, {dict(kills)} kills")
        time.sleep(0.01)
        if time.monotonic() < due or len(reader.polls) == seen:
            continue
        if chance.random() < plan.broker_share:
            broker.kill()
            broker.start()
            kills["broker"] += 1
        else:
            copiers.kill(chance)
            kills["client"] += 1
        seen = len(reader.polls)
        due = time.monotonic() + chance.uniform(*plan.pause_s)
    return kills


def _fill(bootstrap: str, plan: Plan) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUICK})
    topics = [NewTopic(SOURCE, plan.sources, 1), NewTopic(COPY, COPY_PARTITIONS, 1)]
    for future in admin.create_topics(topics).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, **QUICK})
    for partition in range(plan.sources):
        for number in range(plan.each):
            producer.produce(SOURCE, f"{partition}:{number}", partition=partition)
            if number % 1000 == 0:
                producer.poll(0)
    if producer.flush(60):
        raise RuntimeError("the source was not filled")


def drain(bootstrap: str, partition: int) -> Iterator[Seen]:
    """Everything committed in a partition of the copy."""
    consumer = _consumer(bootstrap, "drain")
    consumer.assign([TopicPartition(COPY, partition, OFFSET_BEGINNING)])
    deadline = time.monotonic() + _DRAIN_TIMEOUT_S
    try:
        while time.monotonic() < deadline:
            for message in consumer.consume(10_000, 0.2):
                error = message.error()
                if error is None:
                    yield Seen(message.offset() or 0, (message.value() or b"").decode())
                elif error.code() == KafkaError._PARTITION_EOF:
                    return
                elif not error.retriable() and error.code() not in (
                    KafkaError._TRANSPORT,
                    KafkaError._ALL_BROKERS_DOWN,
                ):
                    raise KafkaException(error)
        raise TimeoutError(f"no end of partition {partition}: is a transaction left open?")
    finally:
        consumer.close()


def _committed(bootstrap: str, sources: int) -> dict[int, int]:
    consumer = _consumer(bootstrap, GROUP)
    asked = [TopicPartition(SOURCE, index) for index in range(sources)]
    found = consumer.committed(asked, 30)
    consumer.close()
    return {each.partition: each.offset for each in found if each.offset >= 0}


def _consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
            **QUICK,
        }
    )


def _uneven_copies(history: History, plan: Plan) -> dict[str, list[str]]:
    """Input set = output set: every record of the source is in the copy, once."""
    copies = Counter(seen.value.partition("/")[0] for records in history.drained.values() for seen in records)
    source = {f"{partition}:{number}" for partition in range(plan.sources) for number in range(plan.each)}
    found = {
        "not copied": sorted(source - copies.keys()),
        "copied twice": sorted(value for value, count in copies.items() if count > 1),
        "copied from nowhere": sorted(copies.keys() - source),
    }
    return {name: values for name, values in found.items() if values}
