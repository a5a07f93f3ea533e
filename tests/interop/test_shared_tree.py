"""Brokers over one coordination tree: each hears of what others commit, and comes back after its session has ended."""

from __future__ import annotations

import sys
from pathlib import Path
from uuid import uuid4

import pytest

from oncelog.admin.cluster import describe_cluster
from oncelog.admin.topics import NewTopic, create_topic, list_topics
from oncelog.client.blocking import Client
from oncelog.coordination.sqlite.tree import SqliteSession
from oncelog.coordination.zookeeper.tree import ZooKeeperSession
from oncelog.node.assembly import StartRefused
from oncelog.ports import Coordination
from oncelog.testing import Broker
from tests.conformance.coordination.trees import expire_session
from tests.peers.process import free_ports
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
Config = dict[str, str]


@pytest.fixture(params=["sqlite", "zookeeper"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Config:
    """The keys that say where the tree is."""
    if request.param == "sqlite":
        return {"oncelog.tree.path": str(tmp_path / "tree.db")}
    return {"zookeeper.connect": f"{request.getfixturevalue('zookeeper').connect}/{uuid4()}"}


def broker(number: int, tree: Config, data_dir: Path | None = None) -> Broker:
    return Broker({"node.id": str(number), **tree}, data_dir=data_dir)


def brokers_of(client: Client) -> list[int]:
    return sorted(row.broker_id for row in describe_cluster(client).brokers)


def session_of(broker: Broker) -> Coordination:
    assert broker._server is not None
    assert broker._server._data_directory is not None
    return broker._server._data_directory.outside.coordination


def expire(session: Coordination, tree: Config) -> None:
    """End a session as when its process is not heard of any more."""
    if isinstance(session, SqliteSession):
        session._tree.expire(session._session_id)
    else:
        assert isinstance(session, ZooKeeperSession)
        expire_session(session, tree["zookeeper.connect"])


@pytest.mark.usefixtures("short_departures")
def test_brokers_on_one_tree_are_one_cluster(tree: Config) -> None:
    with broker(1, tree) as one, Client(one.bootstrap_servers) as client:
        with broker(2, tree) as other, Client(other.bootstrap_servers) as client_of_other:
            wait_until(lambda: brokers_of(client) == [1, 2] == brokers_of(client_of_other), "both brokers")
            create_topic(client, NewTopic("t", partitions=1))
            wait_until(lambda: [row.name for row in list_topics(client_of_other)] == ["t"], "the topic")
        wait_until(lambda: brokers_of(client) == [1], "the departure")


def test_a_broker_whose_session_was_ended_registers_again_without_being_asked_anything(tree: Config) -> None:
    with broker(1, tree) as one, broker(2, tree) as other:
        session = session_of(other)
        before = session.read("/oncelog/broker_epoch")
        expire(session_of(one), tree)
        wait_until(lambda: session.read("/oncelog/broker_epoch") != before, "the registration")
        assert session.children("/brokers/ids") == ["1", "2"]


def test_a_data_directory_has_one_broker_also_where_the_tree_is_elsewhere(tmp_path: Path) -> None:
    data_dir, elsewhere = tmp_path / "data", {"oncelog.tree.path": str(tmp_path / "other.db")}
    other = broker(1, elsewhere, data_dir)
    with (
        broker(1, {"oncelog.tree.path": str(tmp_path / "tree.db")}, data_dir),
        pytest.raises(StartRefused, match="in use by another broker"),
    ):
        other.start()
    other.stop()
    assert not (tmp_path / "other.db").exists()
    assert not (data_dir / "coordination.db").exists()


def refusal(config: Config) -> str:
    """The line with which a broker does not start."""
    refused = broker(1, config)
    with pytest.raises(StartRefused) as caught:
        refused.start()
    refused.stop()
    return str(caught.value)


def test_a_broker_that_cannot_reach_zookeeper_does_not_start() -> None:
    [port] = free_ports(1)
    config = {"zookeeper.connect": f"127.0.0.1:{port}/x", "zookeeper.connection.timeout.ms": "100"}
    assert refusal(config).startswith(f"cannot reach ZooKeeper at 127.0.0.1:{port} within 0.1 s")


def test_a_tree_has_one_place() -> None:
    assert "remove one" in refusal({"zookeeper.connect": "127.0.0.1:1", "oncelog.tree.path": "x.db"})


def test_without_kazoo_a_broker_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("oncelog.") and "zookeeper" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kazoo", None)
    assert refusal({"zookeeper.connect": "127.0.0.1:1"}).endswith("pip install 'oncelog[cluster]'")
