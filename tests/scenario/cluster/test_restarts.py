"""Replicas after their brokers were down: what was committed is shown, and nothing else."""

from __future__ import annotations

from oncelog.base.ids import Offset
from tests.scenario.cluster.cluster import Cluster
from tests.scenario.cluster.replicated import create_replicated, replica, write
from tests.scenario.node.requests import PRODUCE_VERSION, batch, fetch, fetched, produce

CONFIG = {"replica.lag.time.max.ms": "600000", "log.flush.offset.checkpoint.interval.ms": "1000"}


def lagging() -> Cluster:
    """The leader, broker 1, has two records on its disk of which broker 3, in sync, has one."""
    cluster = Cluster(3, CONFIG)
    create_replicated(cluster.connect(1), [1, 2, 3], min_insync_replicas="2")
    assert write(cluster, 1, b"a") == (0, 0)
    cluster.cut(1, 3)
    cluster.connect(1).send(produce("t", batch(cluster[1], b"b"), timeout_ms=60_000), PRODUCE_VERSION)
    cluster.advance(10_000)  # recovery points are written
    assert (replica(cluster[1]).durable_offset, replica(cluster[1]).high_watermark) == (2, 1)
    return cluster


def test_a_restarted_leader_shows_nothing_that_an_in_sync_replica_may_lack() -> None:
    cluster = lagging()
    for broker_id in (3, 2, 1):
        cluster.kill(broker_id)
    cluster.start(1)
    assert replica(cluster[1]).high_watermark <= Offset(1)
    reader = cluster.connect(1)
    reader.send(fetch("t", 1, max_wait_ms=0), 11)
    cluster.advance(1_000)
    error, high_watermark, _ = fetched(reader.responses.popleft())
    assert (error, high_watermark) == (0, 1)


def test_a_follower_that_is_restarted_vouches_for_nothing_more_than_was_committed() -> None:
    cluster = lagging()
    cluster.restart(2)
    assert replica(cluster[2]).high_watermark == 1
