"""``oncelog cluster adopt``: a data directory with its tree becomes the first broker of a cluster."""

from __future__ import annotations

import itertools
from contextlib import closing
from pathlib import Path

import pytest
import typer

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.tree import Create
from oncelog.cli.cluster.adopt import move_in, move_to_zookeeper
from oncelog.client.blocking import Client, Producer
from oncelog.client.blocking.client import LATEST
from oncelog.coordination.zookeeper.tree import ZooKeeperTree
from oncelog.core.controller.image import layout
from oncelog.node.assembly import StartRefused
from oncelog.testing import Broker
from tests.peers.process import free_ports
from tests.peers.zookeeper import ZooKeeper

pytestmark = pytest.mark.slow

_PATHS = itertools.count(1)


@pytest.fixture
def connect(zookeeper: ZooKeeper) -> str:
    """An empty path in ZooKeeper."""
    return f"{zookeeper.connect}/adopt/{next(_PATHS)}"


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """The directory of a broker that has a topic with a record, and was stopped."""
    directory = tmp_path / "alone"
    with (
        Broker(data_dir=directory) as broker,
        Client(broker.bootstrap_servers) as client,
        Producer(client, create_topics=True) as producer,
    ):
        producer.send("t", b"kept")
    return directory


def end_offset(cluster: Path, broker_id: int = 1) -> int:
    """The end of the topic, as the adopted broker tells it."""
    tree = {"oncelog.tree.path": str(cluster / "cluster.db"), "node.id": str(broker_id)}
    with Broker(tree, data_dir=cluster / str(broker_id)) as broker, Client(broker.bootstrap_servers) as client:
        client.topic("t")
        log = broker.data_dir / "t-0" / f"{0:020}.log"
        return log.stat().st_size


def test_topics_and_records_come_along(alone: Path, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster"
    size = (alone / "t-0" / f"{0:020}.log").stat().st_size
    assert move_in(alone, cluster) == cluster / "1"
    assert not alone.exists()
    assert not list((cluster / "1").glob("coordination.db*"))
    assert end_offset(cluster) == size > 0


def test_an_interrupted_adoption_is_gone_on_with(alone: Path, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster"
    cluster.mkdir()
    alone.rename(cluster / "1")
    assert move_in(alone, cluster) == cluster / "1"
    assert end_offset(cluster) > 0


def test_an_adoption_that_is_done_says_so(alone: Path, tmp_path: Path) -> None:
    """As when it was killed before it could say that it had succeeded."""
    move_in(alone, tmp_path / "cluster")
    with pytest.raises(typer.BadParameter, match=r"does not exist; if it was adopted into .*, that is done: oncelog "):
        move_in(alone, tmp_path / "cluster")


def test_a_broker_made_anew_in_the_place_of_one_that_is_being_adopted(alone: Path, tmp_path: Path) -> None:
    """As a service manager makes it that starts the broker again when its directory was moved and its tree was not."""
    cluster = tmp_path / "cluster"
    cluster.mkdir()
    alone.rename(cluster / "1")
    with Broker(data_dir=alone):
        pass
    with pytest.raises(typer.BadParameter, match=r"complete it with oncelog cluster adopt --data-dir \S+ \S+/1\."):
        move_in(alone, cluster)
    assert move_in(cluster / "1", cluster) == cluster / "1"
    assert end_offset(cluster) > 0


def test_a_broker_that_runs_is_left_alone(tmp_path: Path) -> None:
    directory = tmp_path / "alone"
    with Broker(data_dir=directory), pytest.raises(typer.BadParameter, match="stop it first"):
        move_in(directory, tmp_path / "cluster")
    assert directory.exists()
    assert not (tmp_path / "cluster").exists()


@pytest.mark.parametrize("taken", ["1/x", "cluster.db"])
def test_a_place_that_is_taken_is_left_alone(alone: Path, tmp_path: Path, taken: str) -> None:
    present = tmp_path / "cluster" / taken
    present.parent.mkdir(parents=True)
    present.write_bytes(b"x")
    with pytest.raises(typer.BadParameter, match="choose another --data-dir"):
        move_in(alone, tmp_path / "cluster")
    assert (alone / "coordination.db").exists()
    assert present.read_bytes() == b"x"


def test_what_is_no_brokers_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(typer.BadParameter, match=r"of a single broker: it has no coordination\.db"):
        move_in(tmp_path / "other", tmp_path / "cluster")
    with pytest.raises(typer.BadParameter, match="does not exist"):
        move_in(tmp_path / "absent", tmp_path / "cluster")


def refusal(config: dict[str, str], directory: Path) -> str:
    """The line with which a broker on the directory does not start."""
    refused = Broker(config, data_dir=directory)
    with pytest.raises(StartRefused) as caught:
        refused.start()
    refused.stop()
    return str(caught.value)


def test_into_zookeeper_with_topics_and_records(alone: Path, connect: str) -> None:
    assert f"cluster adopt --zookeeper {connect} {alone}" in refusal({"zookeeper.connect": connect}, alone)
    assert move_to_zookeeper(alone, connect) > 10
    assert "set zookeeper.connect" in refusal({}, alone)
    assert not list(alone.glob("coordination.db*"))
    with (
        Broker({"zookeeper.connect": connect}, data_dir=alone) as broker,
        Client(broker.bootstrap_servers) as client,
        Producer(client) as producer,
    ):
        producer.send("t", b"next")
        producer.flush()
        partition = TopicPartition(TopicName("t"), 0)
        assert client.list_offsets({partition: LATEST})[partition].offset == 2  # behind what was written before


def test_into_zookeeper_once_more_after_all_was_copied(alone: Path, connect: str) -> None:
    count = move_to_zookeeper(alone, connect)
    (alone / "adopted-coordination.db").rename(alone / "coordination.db")  # killed before it was set aside
    assert move_to_zookeeper(alone, connect) == count
    assert (alone / "adopted-coordination.db").exists()


def test_into_zookeeper_once_more_after_it_was_done(alone: Path, connect: str) -> None:
    assert move_to_zookeeper(alone, connect) == move_to_zookeeper(alone, connect)
    with pytest.raises(typer.BadParameter, match="into another path in ZooKeeper: name that path"):
        move_to_zookeeper(alone, f"{connect}/other")


def test_no_broker_joins_where_another_is_being_adopted(alone: Path, connect: str, tmp_path: Path) -> None:
    with closing(ZooKeeperTree(connect, 6_000).session()) as tree:
        tree.commit([Create("/oncelog", b""), Create(layout.ADOPTING, b"")])
    new = tmp_path / "new"
    assert "if interrupted, run it again" in refusal({"zookeeper.connect": connect}, new)
    assert not (new / "meta.properties").exists()


def test_into_a_cluster_that_is_there_already(alone: Path, connect: str, tmp_path: Path) -> None:
    with Broker({"zookeeper.connect": connect}, data_dir=tmp_path / "other"):
        pass
    with pytest.raises(typer.BadParameter, match=r"belongs to cluster \S+, the directory to "):
        move_to_zookeeper(alone, connect)
    assert (alone / "coordination.db").exists()


def test_into_a_zookeeper_that_is_not_there(
    alone: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog.cli.cluster.adopt._SESSION_MS", 200)
    [port] = free_ports(1)
    with pytest.raises(typer.Exit):
        move_to_zookeeper(alone, f"127.0.0.1:{port}/x")
    assert f"cannot reach ZooKeeper at 127.0.0.1:{port}" in capsys.readouterr().err
    assert (alone / "coordination.db").exists()
