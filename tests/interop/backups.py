"""Back up brokers at random moments under load, restore each backup, and count: everything acknowledged before is
there, every transaction is there whole or not at all, and an audit finds nothing.

`python -m tests.interop.backups --seed 7 --rounds 20 --brokers 3 --directory DIR` runs a long one by hand.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.cli.log.backup.making import Made, Request, make_backup
from oncelog.cli.log.backup.restoring import restore
from oncelog.client.blocking import Client, Producer, TransactionalProducer, TransactionSettings
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.offsets import Committed, GroupMetadata
from oncelog.client.programs.group import committed_offsets
from oncelog.records.batch import iter_headers
from oncelog.spark.audit.audit_context import Limits
from oncelog.spark.audit.directories import plan
from oncelog.spark.audit.engines.local_engine import LocalEngine
from oncelog.spark.audit.pipeline import audit
from tests.cluster.brokers import PROPERTIES, Cluster
from tests.load import read_to_end
from tests.waiting import wait_until

TRANSFERS: Final = TopicName("transfers")
STATE: Final = TopicName("state")
PASSING: Final = TopicName("passing")
PARTITIONS: Final = 3
KEYS: Final = 5
_SEGMENTS: Final = {"segment.ms": "100", "file.delete.delay.ms": "0"}
TOPICS: Final[Mapping[TopicName, Mapping[str, str]]] = {
    TRANSFERS: {"segment.ms": "300"},
    STATE: {**_SEGMENTS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    PASSING: {**_SEGMENTS, "retention.bytes": "32768"},
}
"""Transactions over three partitions; a compacted topic; one of which retention leaves little."""
_BROKERS: Final = {
    **PROPERTIES,
    "log.retention.check.interval.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
}
_TIMEOUT_MS: Final = 2_000
_ENDED_S: Final = 60
"""Within which the transactions that a restored cluster has open time out."""


class HangingTransactions(Exception):
    """Transactions of a restored cluster do not end: their coordinator does not know them. Has their partitions."""


def group_of(name: str) -> str:
    """The group for which a writer commits offsets in its transactions."""
    return f"group-of-{name}"


class Transfers(threading.Thread):
    """One transactional producer: a number to each partition, and the number as an offset of its group, together. Some
    transactions abort."""

    def __init__(self, bootstrap: str, name: str, chance: random.Random) -> None:
        super().__init__(name=name, daemon=True)
        self._servers = bootstrap
        self._chance = chance
        self.committed: list[int] = []
        self.aborted: list[int] = []
        self.stopping = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        """Transfer until stopped."""
        try:
            with Client(self._servers) as client:
                settings = TransactionSettings(self.name, timeout_ms=_TIMEOUT_MS)
                with TransactionalProducer(client, settings) as producer:
                    producer.initialize()
                    number = 0
                    while not self.stopping.is_set():
                        self._transfer(producer, number)
                        number += 1
        except Exception as error:  # noqa: BLE001  # shown by the drill
            self.failure = error

    def _transfer(self, producer: TransactionalProducer, number: int) -> None:
        producer.begin()
        for partition in range(PARTITIONS):
            producer.send(TRANSFERS, f"{self.name}:{number}:".encode() + bytes(300), partition=partition)
            if self._chance.random() < 0.3:
                producer.flush()
        place = TopicPartition(TRANSFERS, 0)
        producer.send_offsets({place: Committed(number)}, GroupMetadata(group_of(self.name)))
        if self._chance.random() < 0.2:
            producer.abort()
            self.aborted.append(number)
        else:
            producer.commit()
            self.committed.append(number)


class Updates(threading.Thread):
    """One idempotent producer: numbers under a few keys of the compacted topic, and to the topic with retention."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="updates", daemon=True)
        self._servers = bootstrap
        self.acknowledged = -1
        self.stopping = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        """Update until stopped."""
        try:
            with Client(self._servers) as client, Producer(client) as producer:
                number = 0
                while not self.stopping.is_set():
                    for key in range(KEYS):
                        producer.send(STATE, b"%d" % number + b":" + bytes(200), key=b"key-%d" % key, partition=0)
                    producer.send(PASSING, bytes(2_000), partition=0)
                    producer.flush()
                    self.acknowledged = number
                    number += 1
        except Exception as error:  # noqa: BLE001  # shown by the drill
            self.failure = error


@dataclass
class Promise:
    """Acknowledgements before a backup began."""

    committed: Mapping[str, int]
    """Transactions of each writer."""
    updates: int
    backup: Path
    made: Made | None = None


@dataclass
class Drill:
    """Brokers under load, and the backups made of them."""

    directory: Path
    chance: random.Random
    brokers: int = 1
    replicas: int = 1
    writers: list[Transfers] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    largest_producer_id: int = -1

    def run(self, rounds: int) -> list[str]:
        """The broken promises of all rounds."""
        original = Cluster(self.directory / "original", count=self.brokers, base=_settings(self.replicas))
        with original:
            self._load(original, rounds)
            original.kill()
        self.largest_producer_id = max(_producer_ids(original))
        for promise in self.promises:
            self.problems += [f"{promise.backup.name}: {problem}" for problem in self._check(promise)]
        return self.problems

    def _load(self, original: Cluster, rounds: int) -> None:
        with Client(original.bootstrap_servers) as client:
            for topic, configs in TOPICS.items():
                create_topic(client, NewTopic(topic, PARTITIONS, configs=configs))
        names = [f"writer-{index}" for index in range(3)]
        servers = original.bootstrap_servers
        self.writers = [Transfers(servers, name, random.Random(self.chance.random())) for name in names]
        updates = Updates(servers)
        threads: Sequence[Transfers | Updates] = [*self.writers, updates]
        for thread in threads:
            thread.start()
        wait_until(lambda: all(writer.committed for writer in self.writers) and updates.acknowledged > 0, "load")
        for count in range(rounds):
            time.sleep(self.chance.uniform(0, 0.5))
            self._back_up(original, count, updates)
        for thread in threads:
            thread.stopping.set()
        for thread in threads:
            thread.join()
            if thread.failure is not None:
                self.problems.append(f"{thread.name} failed: {thread.failure!r}")

    def _back_up(self, original: Cluster, count: int, updates: Updates) -> None:
        committed = {writer.name: len(writer.committed) for writer in self.writers}
        promise = Promise(committed, updates.acknowledged, self.directory / f"backup-{count}")
        directories = [original.data_directory(broker_id) for broker_id in original.ids]
        since = self.promises[-1].backup if self.promises and self.chance.random() < 0.5 else None
        promise.made = make_backup(Request(directories, promise.backup, since), lambda done, total: None)
        self.promises.append(promise)

    def _check(self, promise: Promise) -> Iterator[str]:
        place = self.directory / f"restored-{promise.backup.name}"
        restore(promise.backup, place / "cluster", lambda done, total: None)
        yield from (f"the backup: {finding}" for finding in _findings(sorted(promise.backup.glob("[0-9]"))))
        tree = {"oncelog.tree.path": str(place / "cluster" / "cluster.db")}
        restored = Cluster(place, count=self.brokers, base=_settings(self.replicas), tree=tree)
        for broker_id in restored.ids:
            directory = restored.data_directory(broker_id)
            directory.parent.mkdir(parents=True)
            (place / "cluster" / str(broker_id)).rename(directory)
        with restored:
            try:
                yield from self._check_transfers(promise, restored.bootstrap_servers)
            except HangingTransactions as hanging:
                yield f"transactions hang in {hanging}"
                return
            except BrokerRefused as refused:  # as offsets that stay unstable
                yield str(refused)
                return
            yield from self._check_updates(promise, restored.bootstrap_servers)
            yield from self._check_new_producer(restored.bootstrap_servers)
            for broker_id in restored.ids:
                restored.stop(broker_id)
        yield from _findings([restored.data_directory(broker_id) for broker_id in restored.ids])

    def _check_transfers(self, promise: Promise, bootstrap: str) -> Iterator[str]:
        # Until the open transactions have timed out, readers of committed records wait for them.
        read: dict[tuple[str, int], list[int]] = defaultdict(list)
        for message in _read_stable(bootstrap, TRANSFERS):
            name, number, _ = (message[1] or b"").decode().split(":", 2)
            read[name, int(number)].append(message[0])
        for writer in self.writers:
            due = set(writer.committed[: promise.committed[writer.name]])
            numbers = {number for name, number in read if name == writer.name}
            if lost := due - numbers:
                yield f"{writer.name}: {len(lost)} transactions of {len(due)} lost, first {min(lost)}"
            if revived := numbers & set(writer.aborted):
                yield f"{writer.name}: aborted transactions {sorted(revived)[:5]} are readable"
            for number in numbers:
                if sorted(read[writer.name, number]) != [*range(PARTITIONS)]:
                    yield f"{writer.name}: transaction {number} is in partitions {read[writer.name, number]}"
            with Client(bootstrap) as client:
                committed = committed_offsets(client, group_of(writer.name), require_stable=True)
                offsets = {position.offset for position in committed.values()}
            if offsets != {max(numbers)}:
                yield f"{writer.name}: offset {offsets} committed with transaction {max(numbers)}"

    def _check_updates(self, promise: Promise, bootstrap: str) -> Iterator[str]:
        last: dict[bytes, int] = {}
        for message in read_to_end(bootstrap, STATE, [0]):
            last[message.key() or b""] = int((message.value() or b":").split(b":", 1)[0])
        if len(last) != KEYS or min(last.values()) < promise.updates:
            yield f"values {last} of keys that had {promise.updates}"

    def _check_new_producer(self, bootstrap: str) -> Iterator[str]:
        with Client(bootstrap) as client, Producer(client) as producer:
            producer.send(PASSING, b"after the restore", partition=1)
            producer.flush()
            fetched = client.fetch({TopicPartition(PASSING, 1): 0}, until={TopicPartition(PASSING, 1): 1})
            ids = {header.producer_id for batch in fetched for _, header in iter_headers(batch.records)}
        if min(ids) <= self.largest_producer_id:
            yield f"producer id {ids} given out twice: the original has given out {self.largest_producer_id}"


def _settings(replicas: int) -> dict[str, str]:
    internal = ("offsets.topic", "transaction.state.log")
    return {
        **_BROKERS,
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(replicas // 2 + 1),
        **{f"{topic}.replication.factor": str(replicas) for topic in internal},
        "transaction.state.log.min.isr": str(replicas // 2 + 1),
    }


def _read_stable(bootstrap: str, topic: str) -> Iterator[tuple[int, bytes | None]]:
    """Partition and value of all committed records, when no transaction is open any more."""

    def open_transactions() -> list[str]:
        with Client(bootstrap) as client:
            places = [TopicPartition(TopicName(topic), partition) for partition in range(PARTITIONS)]
            latest = dict.fromkeys(places, -1)
            ends, stable = client.list_offsets(latest), client.list_offsets(latest, read_committed=True)
        return [str(place) for place in places if ends[place].offset != stable[place].offset]

    deadline_s = time.monotonic() + _ENDED_S
    while left := open_transactions():
        if time.monotonic() > deadline_s:
            raise HangingTransactions(left)
        time.sleep(0.1)
    for message in read_to_end(bootstrap, topic, range(PARTITIONS), {"isolation.level": "read_committed"}):
        yield message.partition() or 0, message.value()


def _findings(directories: Sequence[Path]) -> list[str]:
    result = audit(plan(directories), LocalEngine(), limits=Limits(skew_ms=0))
    return [f"the audit: {finding}" for finding in result.findings[:5]]


def _producer_ids(cluster: Cluster) -> Iterator[int]:
    """Of all batches in the logs of all brokers."""
    for broker_id in cluster.ids:
        for path in cluster.data_directory(broker_id).glob("*/*.log"):
            for _, header in iter_headers(memoryview(path.read_bytes())):
                yield header.producer_id


def run(directory: Path, *, seed: int, rounds: int, brokers: int = 1, replicas: int = 1) -> list[str]:
    """The broken promises of backups at random moments. Without replicas, each broker has partitions of its own, and
    copies of different moments would not fit together."""
    drill = Drill(directory, random.Random(seed), brokers, replicas)
    problems = drill.run(rounds)
    made = [promise.made for promise in drill.promises if promise.made is not None]
    print(f"seed {seed}: {len(made)} backups of {brokers} brokers, held for {[item.held_ms for item in made]} ms,")
    print(f"  {[item.files for item in made]} files, {[item.shared_files for item in made]} of them shared,")
    transactions = {writer.name: (len(writer.committed), len(writer.aborted)) for writer in drill.writers}
    print(f"  transactions committed and aborted: {transactions}", *problems, sep="\n")
    return problems


def main() -> int:
    """Run by hand; 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--directory", type=Path, required=True, help="an empty directory")
    options = parser.parse_args()
    few = {name: getattr(options, name) for name in ("seed", "rounds", "brokers", "replicas")}
    return 1 if run(options.directory, **few) else 0


if __name__ == "__main__":
    sys.exit(main())
