"""The brokers under measurement, each a process of its own: us, and Apache Kafka at the same durability."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.oncelog_serve import OncelogServe

from bench.floor import FloorServe

Broker = ApacheKafka | OncelogServe


class Processes(Protocol):
    """A process, or those of a cluster."""

    def cpu_seconds(self) -> float:
        """User and system time so far."""


class Served(Protocol):
    """A broker or a cluster that clients talk to."""

    @property
    def bootstrap_servers(self) -> str:
        """The setting of clients."""

    @property
    def process(self) -> Processes:
        """Its process, or all of them."""


PAGE_CACHE: Final = {"log.sync.policy": "none"}
"""Apache Kafka's durability: acknowledged from the page cache."""
GROUP_COMMIT: Final = {"log.sync.policy": "commit"}
"""Our default: acknowledged after a group-committed fdatasync."""


def _oncelog(properties: Mapping[str, str], directory: Path) -> Broker:
    return OncelogServe(directory, properties=properties)


def _apache_kafka(properties: Mapping[str, str], directory: Path) -> Broker:
    return ApacheKafka(directory, heap_mb=1024, properties=properties)


def _floor(_properties: Mapping[str, str], directory: Path) -> Broker:
    return FloorServe(directory)


@dataclass(frozen=True)
class Peer:
    """How to make one side of a comparison."""

    name: str
    make: Callable[[Mapping[str, str], Path], Broker]
    properties: Mapping[str, str] = field(default_factory=dict)

    def broker(self, directory: Path) -> Broker:
        """A broker in a directory of its own, not yet started."""
        return self.make(self.properties, directory / re.sub(r"\W+", "-", self.name))


ONCELOG: Final = Peer("oncelog", _oncelog, PAGE_CACHE)
ONCELOG_SYNCED: Final = Peer("oncelog, synced", _oncelog, GROUP_COMMIT)
ONCELOG_ZOOKEEPER: Final = Peer("oncelog, ZooKeeper", _oncelog, PAGE_CACHE)
"""For clusters: their facts lie in a ZooKeeper, not in a file of the host."""
KAFKA: Final = Peer("Apache Kafka", _apache_kafka)
FLOOR: Final = Peer("floor", _floor)
"""No broker: what a client of transactions takes by itself."""


def checkout(directory: Path) -> Peer:
    """Another checkout of oncelog, run by this Python with the libraries of this one: what a change has cost."""
    if not (directory / "src/oncelog").is_dir():
        raise ValueError(f"{directory} is no checkout of oncelog: there is no src/oncelog in it")
    command = ("env", f"PYTHONPATH={directory.resolve() / 'src'}", sys.executable, "-m", "oncelog")

    def make(properties: Mapping[str, str], data: Path) -> Broker:
        return OncelogServe(data, properties=properties, command=command)

    return Peer(f"oncelog in {directory.name}", make, PAGE_CACHE)


@contextlib.contextmanager
def running(broker: Broker) -> Iterator[Broker]:
    """Start, hand out, kill."""
    with broker:
        yield broker


def create_topics(broker: Served, count: int, partitions: int, prefix: str, *, replicas: int = 1) -> list[str]:
    """Make topics of so many partitions and replicas each; their names."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    names = [f"{prefix}-{number}" for number in range(count)]
    for start in range(0, count, 20):
        topics = [NewTopic(name, partitions, replicas) for name in names[start : start + 20]]
        for future in admin.create_topics(topics, operation_timeout=60, request_timeout=120).values():
            future.result(180)
    return names


def create_topic(broker: Broker, name: str, partitions: int) -> None:
    """Make one topic."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for future in admin.create_topics([NewTopic(name, partitions, 1)], operation_timeout=60).values():
        future.result(60)


def delete_topics(broker: Served, names: list[str]) -> None:
    """Remove topics, so that repetitions do not fill the disk."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for future in admin.delete_topics(names).values():
        future.result(60)
