"""Three brokers as processes: killed, frozen, all killed at once; nothing acknowledged is lost or doubled."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cluster.brokers import Cluster
from tests.cluster.replicas import differing_replicas
from tests.load import Load, check, create_topic
from tests.peers.zookeeper import ZooKeeper

pytestmark = [pytest.mark.integration, pytest.mark.slow]
TOPIC = "orders"


def start_loads(cluster: Cluster, count: int) -> list[Load]:
    create_topic(cluster.bootstrap_servers, TOPIC, 3)
    loads = [Load(cluster.bootstrap_servers, TOPIC, f"producer-{number}", 3) for number in range(count)]
    for load in loads:
        load.start()
    return loads


def everybody_goes_on(loads: Sequence[Load]) -> None:
    for load in loads:
        load.wait_for_more()


def assert_nothing_was_lost(cluster: Cluster, loads: list[Load]) -> None:
    """Also on disk, once all brokers have come to rest."""
    for load in loads:
        load.stop()
    cluster.wait_healthy()
    command = [sys.executable, "-m", "oncelog", "cluster", "status", "--json", "-b", cluster.bootstrap_servers]
    status = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(status.stdout)["healthy"]
    assert list(check(cluster.bootstrap_servers, TOPIC, loads)) == []
    assert [cluster.stop(broker_id) for broker_id in cluster.ids] == [0, 0, 0]
    directories = {broker_id: cluster.data_directory(broker_id) for broker_id in cluster.ids}
    assert list(differing_replicas(directories, TOPIC)) == []


def test_nothing_acknowledged_is_lost_when_brokers_are_killed_and_frozen(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        loads = start_loads(cluster, 2)
        everybody_goes_on(loads)

        killed = cluster.leader(TOPIC, 0)
        cluster.kill([killed])
        cluster.wait_for_other_leader(TOPIC, 0, killed)
        everybody_goes_on(loads)
        cluster.start()

        frozen = cluster.leader(TOPIC, 1)
        cluster.freeze(frozen)
        cluster.wait_for_other_leader(TOPIC, 1, frozen)  # its session has ended
        cluster.thaw(frozen)
        everybody_goes_on(loads)

        cluster.kill()
        cluster.start()
        everybody_goes_on(loads)
        assert_nothing_was_lost(cluster, loads)


def test_nothing_acknowledged_is_lost_when_a_broker_and_zookeeper_are_killed(tmp_path: Path) -> None:
    (tmp_path / "zookeeper").mkdir()
    with (
        ZooKeeper(tmp_path / "zookeeper") as zookeeper,
        Cluster(tmp_path / "brokers", tree={"zookeeper.connect": f"{zookeeper.connect}/cluster"}) as cluster,
    ):
        loads = start_loads(cluster, 1)
        everybody_goes_on(loads)
        killed = cluster.leader(TOPIC, 0)
        cluster.kill([killed])
        cluster.wait_for_other_leader(TOPIC, 0, killed)
        everybody_goes_on(loads)

        zookeeper.kill()
        everybody_goes_on(loads)  # without the tree nothing changes, and the cluster serves on
        zookeeper.start()
        cluster.start()
        everybody_goes_on(loads)
        assert_nothing_was_lost(cluster, loads)
