"""``oncelog cluster adopt``, killed at each change that it makes: it goes on, and loses nothing."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from oncelog.client.blocking import Client, Producer
from oncelog.node.assembly import StartRefused
from oncelog.testing import Broker
from tests.load import Load, check, create_topic
from tests.peers.oncelog_serve import OncelogServe
from tests.peers.process import free_ports
from tests.peers.zookeeper import ZooKeeper

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_PATHS = itertools.count(1)
_MOST: Final = 60
"""Changes that an adoption makes."""


@dataclass(frozen=True)
class Adoption:
    """A directory, and the cluster that it comes into."""

    arguments: Sequence[str]
    alone: Path
    adopted: Path
    tree: Mapping[str, str]

    def killed_at(self, change: int) -> bool:
        """Run it; True if it was killed, False if it was done before."""
        run = subprocess.run(
            [sys.executable, "-m", "tests.interop.cli.dying", str(change), "cluster", "adopt", *self.arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode in (0, -signal.SIGKILL), run.stderr
        return run.returncode != 0

    def where(self) -> Path:
        """The directory, as far as it has come."""
        return self.alone if self.alone.exists() else self.adopted


@pytest.fixture(params=["sqlite", "zookeeper"])
def adoption(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Adoption]:
    alone = tmp_path / "alone"
    if request.param == "sqlite":
        cluster = tmp_path / "cluster"
        tree = {"oncelog.tree.path": str(cluster / "cluster.db")}
        yield Adoption((str(alone), "--data-dir", str(cluster)), alone, cluster / "1", tree)
        return
    zookeeper: ZooKeeper = request.getfixturevalue("zookeeper")
    connect = f"{zookeeper.connect}/adopt-killed/{next(_PATHS)}"
    yield Adoption((str(alone), "--zookeeper", connect), alone, alone, {"zookeeper.connect": connect})


def write(broker: Broker, topic: str) -> None:
    with Client(broker.bootstrap_servers) as client, Producer(client, create_topics=True) as producer:
        producer.send(topic, topic.encode())


def test_what_the_broker_does_alone_in_between_comes_along(adoption: Adoption) -> None:
    """A service manager may start it again, as it was, whenever the command was killed."""
    with Broker(data_dir=adoption.alone) as broker:
        write(broker, "first")
    topics = ["first"]
    for change in range(1, _MOST):
        if not adoption.killed_at(change):
            break
        with suppress(StartRefused), Broker(data_dir=adoption.where()) as broker:  # refused: its tree is set aside
            write(broker, f"before-{change}")
            topics.append(f"before-{change}")
    assert 4 < change < _MOST - 1
    assert len(topics) > 3
    with Broker({**adoption.tree, "node.id": "1"}, data_dir=adoption.adopted) as broker:
        sizes = {topic: (broker.data_dir / f"{topic}-0" / f"{0:020}.log").stat().st_size for topic in topics}
        with Client(broker.bootstrap_servers) as client:
            assert set(client.metadata()) >= set(topics)
        assert min(sizes.values()) > 0


def test_a_producer_goes_on_before_and_after(adoption: Adoption, tmp_path: Path) -> None:
    """The broker is killed, too; its producer knows one address, and waits."""
    ports = free_ports(3)
    bootstrap = f"127.0.0.1:{ports[0]}"
    broker = OncelogServe(tmp_path / "first", port=ports[0])
    broker.data_directory = adoption.alone
    brokers = [broker]
    try:
        broker.start()
        create_topic(bootstrap, "orders", 2)
        load = Load(bootstrap, "orders", "producer", 2)
        load.start()
        try:
            load.wait_for_more()
            broker.kill()
            for change in range(1, _MOST):
                if not adoption.killed_at(change):
                    break
            for number, port in enumerate(ports, 1):
                properties = {**adoption.tree, "node.id": str(number)}
                brokers.append(OncelogServe(tmp_path / f"broker-{number}", properties=properties, port=port))
            brokers[1].data_directory = adoption.adopted
            for item in brokers[1:]:
                item.start()
            load.wait_for_more()
        finally:
            load.stop()
        assert list(check(bootstrap, "orders", [load])) == []
    finally:
        for item in brokers:
            if item.is_running:
                item.kill()
