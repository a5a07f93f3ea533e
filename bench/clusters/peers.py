"""Clusters under measurement: processes of one machine, ours beside Apache Kafka's (KRaft, each its own controller).

Both sides have the same factor (3), ``min.insync.replicas`` (2) and session time-out, and Apache Kafka's durability
unless a benchmark is about ours. The processor time of a cluster is that of all its brokers, those that were killed
meanwhile included up to the last look at them; a ZooKeeper's is not counted.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.process import free_ports
from tests.peers.zookeeper import ZooKeeper
from tests.waiting import HANG_S

from bench.peers import KAFKA, ONCELOG_ZOOKEEPER, Broker, Peer

BROKERS: Final = 3
SESSION_MS: Final = 6000
HEAP_MB: Final = 512
_COMMON: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
_POLL_S: Final = 0.01


class BenchCluster:
    """Brokers by id, which can be killed, frozen and started again one by one."""

    def __init__(self, brokers: Mapping[int, Broker]) -> None:
        self.brokers = dict(brokers)
        self._spent_s = 0.0
        """Processor time of processes that have ended."""

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all, dead or alive."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    @property
    def process(self) -> BenchCluster:
        """All processes, as one that is measured."""
        return self

    def cpu_seconds(self) -> float:
        """User and system time of all brokers so far."""
        return self._spent_s + sum(self.cpu_by_broker().values())

    def cpu_by_broker(self) -> dict[int, float]:
        """User and system time of the brokers that run."""
        return {broker_id: broker.process.cpu_seconds() for broker_id, broker in self.brokers.items() if _runs(broker)}

    def start(self, *broker_ids: int) -> None:
        """Start some brokers, or all, side by side: a controller answers when most of them are there."""
        chosen = [self.brokers[broker_id] for broker_id in broker_ids or self.brokers]
        with ThreadPoolExecutor(len(chosen)) as pool:
            for started in [pool.submit(broker.start) for broker in chosen]:
                started.result()

    def kill(self, broker_id: int) -> None:
        """SIGKILL to one."""
        broker = self.brokers[broker_id]
        self._spent_s += broker.process.cpu_seconds()
        broker.kill()

    def stop(self, broker_id: int) -> None:
        """SIGTERM to one, and wait for the end of its controlled shutdown."""
        broker = self.brokers[broker_id]
        self._spent_s += broker.process.cpu_seconds()
        broker.stop()

    def freeze(self, broker_id: int) -> None:
        """SIGSTOP to one."""
        os.kill(self.brokers[broker_id].process.pid, signal.SIGSTOP)

    def thaw(self, broker_id: int) -> None:
        """SIGCONT to one."""
        os.kill(self.brokers[broker_id].process.pid, signal.SIGCONT)

    def empty(self, broker_id: int) -> None:
        """Remove the data directory of a broker that does not run."""
        shutil.rmtree(self.brokers[broker_id].data_directory)

    def kill_all(self) -> None:
        """SIGKILL to those that are still there."""
        for broker in self.brokers.values():
            broker.__exit__(None, None, None)

    # Questions that both sides answer alike

    def replicas(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """The leader of a partition, and how many replicas are in sync."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        result = admin.list_topics(topic, timeout=30).topics[topic].partitions[partition]
        return result.leader, len(result.isrs)

    def wait_in_sync(self, topic: str, count: int = BROKERS) -> None:
        """Wait until so many replicas of every partition of ``topic`` are in sync and lead-able."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        deadline = time.monotonic() + 3 * HANG_S
        while True:
            partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions.values()
            if partitions and all(len(partition.isrs) >= count and partition.leader > 0 for partition in partitions):
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{topic} does not get {count} replicas in sync")
            time.sleep(_POLL_S)


def _runs(broker: Broker) -> bool:
    try:
        return broker.process.running
    except RuntimeError:
        return False


@contextlib.contextmanager
def running_cluster(
    peer: Peer, directory: Path, count: int = BROKERS, properties: Mapping[str, str] | None = None
) -> Iterator[BenchCluster]:
    """A cluster of a peer in a directory of its own: start, hand out, kill. ``properties`` win over the peer's."""
    directory.mkdir(parents=True, exist_ok=True)
    factor = {} if count >= BROKERS else {"default.replication.factor": "1", "min.insync.replicas": "1"}
    common = {**_COMMON, **factor, **peer.properties, **(properties or {})}
    with contextlib.ExitStack() as stack:
        brokers: dict[int, Broker] = {}
        if peer.make is KAFKA.make:
            brokers.update(_apache_kafka(directory, count, common))
        else:
            tree = {"oncelog.tree.path": str(directory / "cluster.db")}
            if peer is ONCELOG_ZOOKEEPER:
                tree = {"zookeeper.connect": stack.enter_context(ZooKeeper(directory)).connect}
            brokers.update(_oncelog(peer, directory, count, {**common, **tree}))
        cluster = BenchCluster(brokers)
        stack.callback(cluster.kill_all)
        cluster.start()
        yield cluster


def _oncelog(peer: Peer, directory: Path, count: int, properties: Mapping[str, str]) -> dict[int, Broker]:
    session = {"zookeeper.session.timeout.ms": str(SESSION_MS)}
    return {
        broker_id: peer.make({**session, **properties, "node.id": str(broker_id)}, directory / f"broker-{broker_id}")
        for broker_id in range(1, count + 1)
    }


def _apache_kafka(directory: Path, count: int, properties: Mapping[str, str]) -> dict[int, ApacheKafka]:
    ports = free_ports(2 * count)
    voters = ",".join(f"{number + 1}@127.0.0.1:{ports[count + number]}" for number in range(count))
    brokers = {}
    for number in range(count):
        port, controller_port = ports[number], ports[count + number]
        own = {
            "node.id": str(number + 1),
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.quorum.voters": voters,
            "broker.session.timeout.ms": str(SESSION_MS),
        }
        brokers[number + 1] = ApacheKafka(
            directory / f"broker-{number + 1}", heap_mb=HEAP_MB, properties={**properties, **own}, port=port
        )
    return brokers
