"""Throttles of replication (KIP-73): replicas that move keep to their rate, those in sync are never held back."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.scenario.cluster.cluster import Cluster
from tests.scenario.cluster.replicated import create_replicated, replica, state, write
from tests.scenario.cluster.test_reassignments import reassign

pytestmark = pytest.mark.slow

TOPIC, BROKER = 2, 4
RECORD = b"x" * 4900
RECORDS = 100
RATE = 10_000
SMALL = {"replica.fetch.max.bytes": "5000", "replica.fetch.response.max.bytes": "5000"}
BOTH = ("leader", "follower")


def alter(cluster: Cluster, kind: int, name: str, **configs: str | None) -> None:
    """Set configs (``_`` for ``.``), or take them away."""
    changes = [
        AlterableConfig(name=key.replace("_", "."), value=value, config_operation=int(value is None))
        for key, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
    [result] = cluster.connect(1).ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert result.error_code == 0, result


def throttle(cluster: Cluster, rate: str | None, *sides: str, leader: str = "0:1", follower: str = "0:2") -> None:
    """Set what kafka-reassign-partitions sets: the rate of all brokers, the replicas of the topic."""
    for side in sides:
        alter(cluster, BROKER, "", **{f"{side}_replication_throttled_rate": rate})
        replicas = leader if side == "leader" else follower
        alter(cluster, TOPIC, "t", **{f"{side}_replication_throttled_replicas": None if rate is None else replicas})


def filled() -> Cluster:
    """Brokers, the first of which has 500 kB."""
    cluster = Cluster(3, SMALL)
    create_replicated(cluster.connect(1), [1])
    for _ in range(RECORDS):
        assert write(cluster, 1, RECORD)[0] == ErrorCode.NONE
    return cluster


def copied(cluster: Cluster) -> int:
    """Records that have arrived."""
    return replica(cluster[2]).log_end_offset


@pytest.mark.parametrize("sides", [("leader",), ("follower",), BOTH])
def test_a_move_keeps_to_its_rate(sides: tuple[str, ...]) -> None:
    cluster = filled()
    throttle(cluster, str(RATE), *sides)
    assert reassign(cluster, [1, 2]) == ErrorCode.NONE
    cluster.advance(5_000)
    before = copied(cluster)
    assert 9 <= before <= 13, "10 kB a second, and 5 in a record"
    cluster.advance(20_000)
    assert 37 <= copied(cluster) - before <= 41
    assert state(cluster[1]).isr == (1,)
    cluster.advance(30_000)
    assert copied(cluster) == RECORDS
    assert set(state(cluster[1]).isr) == {1, 2}


def test_without_the_throttle_it_goes_on_at_once() -> None:
    cluster = filled()
    throttle(cluster, str(RATE), *BOTH)
    assert reassign(cluster, [1, 2]) == ErrorCode.NONE
    cluster.advance(5_000)
    assert copied(cluster) < RECORDS
    throttle(cluster, None, *BOTH)
    cluster.advance(2_000)
    assert copied(cluster) == RECORDS


@pytest.mark.parametrize(
    ("leader", "follower"), [("0:2", "0:1"), ("1:1", "1:2"), ("", "")], ids=["other side", "other partition", "none"]
)
def test_replicas_that_are_not_named_are_not_held_back(leader: str, follower: str) -> None:
    cluster = filled()
    throttle(cluster, "1", *BOTH, leader=leader, follower=follower)
    assert reassign(cluster, [1, 2]) == ErrorCode.NONE
    cluster.advance(2_000)
    assert copied(cluster) == RECORDS


def test_replicas_in_sync_are_never_held_back() -> None:
    """A Produce waits for them."""
    cluster = Cluster(3, SMALL)
    create_replicated(cluster.connect(1), [1, 2], min_insync_replicas="2")
    throttle(cluster, "0", *BOTH, leader="*", follower="*")
    for number in range(20):
        assert write(cluster, 1, RECORD) == (ErrorCode.NONE, number)
    assert set(state(cluster[1]).isr) == {1, 2}
    assert cluster[1].node.cluster.leader_throttle.quota.total_bytes > 20 * len(RECORD), "but counted"


def test_consumers_are_not_held_back_and_a_throttled_fetch_waits_its_time() -> None:
    cluster = filled()
    throttle(cluster, "1", *BOTH)
    assert reassign(cluster, [1, 2]) == ErrorCode.NONE
    cluster.advance(1_000)
    before = cluster[1].node.requests.traffic.by_api[1].requests
    cluster.advance(10_000)
    fetches = cluster[1].node.requests.traffic.by_api[1].requests - before
    assert fetches <= 10_000 // 100 + 20, "no busy loop between follower and leader"
