"""Followers copy what their leader appends; the high watermark and the in-sync set follow from what they fetch."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from tests.scenario.cluster.cluster import Cluster
from tests.scenario.cluster.replicated import assert_same, contents, create_replicated, replica, state, write
from tests.scenario.node.requests import PRODUCE_VERSION, batch, fetch, fetched, produce, produced

LAG_MS = 30_000


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(3)
    create_replicated(cluster.connect(1), [1, 2, 3], min_insync_replicas="2")
    return cluster


def test_what_is_acknowledged_is_on_all_replicas(cluster: Cluster) -> None:
    assert write(cluster, 1, b"a", b"b") == (0, 0)
    assert write(cluster, 1, b"c") == (0, 2)
    assert_same(cluster, 1, 2, 3)
    assert contents(replica(cluster[3])) == [(0, 0), (2, 0)]
    assert state(cluster[2]).isr == (1, 2, 3)


def test_nobody_but_the_leader_takes_records(cluster: Cluster) -> None:
    assert write(cluster, 2, b"a") == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_acks_all_waits_for_every_member_of_the_in_sync_set(cluster: Cluster) -> None:
    cluster.cut(1, 3)
    peer = cluster.connect(1)
    peer.send(produce("t", batch(cluster[1], b"a"), timeout_ms=60_000), PRODUCE_VERSION)
    assert not peer.responses
    assert replica(cluster[2]).log_end_offset == 1
    assert replica(cluster[1]).high_watermark == 0
    cluster.heal(1, 3)
    assert produced(peer.responses.popleft()) == (0, 0)


def test_a_follower_acknowledges_what_is_on_its_disk_and_not_what_it_was_sent(cluster: Cluster) -> None:
    cluster[3].hold_syncs = True
    peer = cluster.connect(1)
    peer.send(produce("t", batch(cluster[1], b"a"), timeout_ms=60_000), PRODUCE_VERSION)
    assert replica(cluster[3]).log_end_offset == 1
    assert not peer.responses
    cluster[3].hold_syncs = False
    cluster[3].release()
    cluster.settle()
    assert produced(peer.responses.popleft()) == (0, 0)


def test_readers_see_nothing_beyond_the_high_watermark(cluster: Cluster) -> None:
    cluster.cut(1, 3)
    write_and_wait = cluster.connect(1)
    write_and_wait.send(produce("t", batch(cluster[1], b"a"), timeout_ms=60_000), PRODUCE_VERSION)
    reader = cluster.connect(1)
    assert fetched(reader.ask(fetch("t", 0, max_wait_ms=0), 11)) == (0, 0, b"")
    cluster.heal(1, 3)
    error, high_watermark, records = fetched(reader.ask(fetch("t", 0, max_wait_ms=0), 11))
    assert (error, high_watermark, bool(records)) == (0, 1, True)


def test_a_follower_that_lags_leaves_the_in_sync_set_and_joins_again(cluster: Cluster) -> None:
    cluster.cut(1, 3)
    peer = cluster.connect(1)
    peer.send(produce("t", batch(cluster[1], b"a"), timeout_ms=120_000), PRODUCE_VERSION)
    cluster.advance(2 * LAG_MS)
    assert produced(peer.responses.popleft()) == (0, 0)
    assert [state(cluster[broker]).isr for broker in (1, 2, 3)] == [(1, 2)] * 3
    assert cluster[1].node.in_sync_sets.under_replicated_count() == 1
    cluster.heal(1, 3)
    cluster.advance(2_000)
    assert state(cluster[1]).isr == (1, 2, 3)
    assert_same(cluster, 1, 2, 3)


def test_below_min_insync_replicas_acks_all_is_refused_and_nothing_new_is_shown(cluster: Cluster) -> None:
    assert write(cluster, 1, b"a") == (0, 0)
    cluster.cut(1, 2)
    cluster.cut(1, 3)
    assert write(cluster, 1, b"b", acks=1) == (0, 1)
    cluster.advance(2 * LAG_MS)
    assert state(cluster[1]).isr == (1,)
    assert set(state(cluster[1]).elr) == {2, 3}
    assert write(cluster, 1, b"c") == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert replica(cluster[1]).high_watermark == 1
    cluster.heal(1, 2)
    cluster.heal(1, 3)
    cluster.advance(2_000)
    assert (state(cluster[1]).isr, state(cluster[1]).elr) == ((1, 2, 3), ())
    assert_same(cluster, 1, 2, 3)


def test_a_follower_that_restarts_goes_on_where_it_was(cluster: Cluster) -> None:
    write(cluster, 1, b"a")
    cluster.restart(3)
    assert write(cluster, 1, b"b") == (0, 1)
    assert_same(cluster, 1, 2, 3)


def test_many_partitions_are_copied_in_one_session(cluster: Cluster) -> None:
    peer = cluster.connect(1)
    for number in range(20):
        create_replicated(peer, [1, 2, 3], f"many-{number}")
    cluster.advance(1_000)
    sent = len(cluster.wire.sent)
    assert write(cluster, 1, b"a") == (0, 0)
    between = [data for source, target, data in cluster.wire.sent[sent:] if (source, target) == (2, 1)]
    assert max(map(len, between)) < 300  # only what changed is named


def test_an_idle_cluster_asks_seldom(cluster: Cluster) -> None:
    cluster.advance(5_000)
    sent = len(cluster.wire.sent)
    cluster.advance(10_000)
    fetches = 2 * 2 * 21  # two followers, an answer each 500 ms
    liveness = 6 * 2 * 41  # each asks both others, every 250 ms
    assert len(cluster.wire.sent) - sent <= fetches + liveness
