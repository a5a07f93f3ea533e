"""Brokers over one coordination tree: each hears of what others commit, and comes back when its session has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.admin.cluster import describe_cluster
from oncelog.admin.topics import NewTopic, create_topic, list_topics
from oncelog.client.blocking import Client
from oncelog.coordination.sqlite import SqliteTree
from oncelog.node.assembly import StartRefused
from oncelog.testing import Broker
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def broker(number: int, tree: Path, data_dir: Path | None = None) -> Broker:
    return Broker({"node.id": str(number), "oncelog.tree.path": str(tree)}, data_dir=data_dir)


def brokers_of(client: Client) -> list[int]:
    return sorted(row.broker_id for row in describe_cluster(client).brokers)


def test_brokers_on_one_tree_are_one_cluster(tmp_path: Path) -> None:
    tree = tmp_path / "tree.db"
    with broker(1, tree) as one, Client(one.bootstrap_servers) as client:
        with broker(2, tree) as other, Client(other.bootstrap_servers) as client_of_other:
            wait_until(lambda: brokers_of(client) == [1, 2] == brokers_of(client_of_other), "both brokers")
            create_topic(client, NewTopic("t", partitions=1))
            wait_until(lambda: [row.name for row in list_topics(client_of_other)] == ["t"], "the topic")
        wait_until(lambda: brokers_of(client) == [1], "the departure")


def test_a_broker_whose_session_was_ended_registers_again_without_being_asked_anything(tmp_path: Path) -> None:
    path = tmp_path / "tree.db"
    with broker(1, path):
        tree = SqliteTree(path)
        session = tree.session()
        before = session.read("/oncelog/broker_epoch")
        [(session_id,)] = tree._reader.execute("SELECT id FROM session")
        tree.expire(session_id)
        wait_until(lambda: session.children("/brokers/ids") == ["1"], "the registration")
        assert session.read("/oncelog/broker_epoch") != before
        tree.close()


def test_a_data_directory_has_one_broker_also_where_the_tree_is_elsewhere(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    other = broker(1, tmp_path / "other.db", data_dir)
    with broker(1, tmp_path / "tree.db", data_dir), pytest.raises(StartRefused, match="in use by another broker"):
        other.start()
    other.stop()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "tree.db", "tree.db.opening"]
    assert not (data_dir / "coordination.db").exists()
