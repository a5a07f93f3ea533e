"""A full disk takes the replicas on it offline until there is room; one that fails ends its broker (KIP-112)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.node.logs.directory_health import CHECK_MS, LONGEST_CHECK_MS, RELAPSE_MS
from oncelog.runtime.metrics.cluster_metrics import cluster_metrics
from oncelog.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.scenario.cluster.cluster import Cluster
from tests.scenario.cluster.replicated import assert_same, create_replicated, replica, state, write
from tests.scenario.node.requests import fetch

REFUSALS = (
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)
STORAGE_ERROR = (ErrorCode.KAFKA_STORAGE_ERROR, -1)


def fill(cluster: Cluster, broker_id: int) -> None:
    """Take all room from a broker's disk."""
    files = cluster[broker_id].files
    files.capacity = files.used
    cluster[broker_id].node.directory.measure = lambda: (1000, 0 if files.capacity is not None else 500)


def empty(cluster: Cluster, broker_id: int) -> None:
    """Give it room again."""
    cluster[broker_id].files.capacity = None


def directory_error(cluster: Cluster, broker_id: int) -> int:
    (result,) = cluster.connect(broker_id).ask(DescribeLogDirsRequest(topics=None), 4).results
    return int(result.error_code)


def offline_directories(cluster: Cluster, broker_id: int) -> float:
    (metric,) = [m for m in cluster_metrics(cluster[broker_id].node) if m.name == "oncelog_offline_log_directories"]
    return float(metric.samples[0].value)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(3)
    create_replicated(cluster.connect(1), [1, 2, 3], min_insync_replicas="2")
    assert write(cluster, 1, b"a") == (0, 0)
    return cluster


def test_others_lead_what_a_broker_with_a_full_disk_has_led(cluster: Cluster) -> None:
    fill(cluster, 1)
    assert write(cluster, 1, b"b") == STORAGE_ERROR
    assert (state(cluster[1]).leader, state(cluster[1]).isr) == (2, (2, 3))
    assert write(cluster, 2, b"b") == (0, 1)
    assert [directory_error(cluster, number) for number in (1, 2)] == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
    assert [offline_directories(cluster, number) for number in (1, 2)] == [1, 0]
    assert cluster[1].fatal is None


def test_it_takes_part_again_when_there_is_room(cluster: Cluster) -> None:
    fill(cluster, 1)
    write(cluster, 1, b"b")
    assert write(cluster, 2, b"b") == (0, 1)
    cluster.advance(CHECK_MS)
    assert state(cluster[1]).isr == (2, 3), "the disk is full as before"
    empty(cluster, 1)
    cluster.advance(2 * CHECK_MS)
    assert state(cluster[1]).isr == (1, 2, 3)
    assert directory_error(cluster, 1) == offline_directories(cluster, 1) == 0
    assert_same(cluster, 1, 2, 3)


def test_a_follower_with_a_full_disk_holds_nobody_up(cluster: Cluster) -> None:
    fill(cluster, 3)
    peer = cluster.connect(1)
    assert write(cluster, 1, b"b") == (0, 1), "acknowledged by two of them"
    assert (state(cluster[1]).leader, state(cluster[1]).isr) == (1, (1, 2))
    empty(cluster, 3)
    cluster.advance(2 * CHECK_MS)
    assert state(cluster[1]).isr == (1, 2, 3)
    assert not peer.closed
    assert_same(cluster, 1, 2, 3)


def test_what_nobody_else_has_can_be_read_from_a_full_disk() -> None:
    cluster = Cluster(2)
    create_replicated(cluster.connect(1), [1])
    assert write(cluster, 1, b"a") == (0, 0)
    fill(cluster, 1)
    assert write(cluster, 1, b"b") == STORAGE_ERROR
    assert state(cluster[2]).leader == 1
    assert cluster.connect(1).ask(fetch("t", 0), 11).responses[0].partitions[0].records
    empty(cluster, 1)
    assert write(cluster, 1, b"b") == (0, 1)


def test_one_leads_on_where_all_disks_are_full(cluster: Cluster) -> None:
    for number in (1, 2, 3):
        fill(cluster, number)
    for number in (1, 2, 3):
        assert write(cluster, number, b"b")[0] in REFUSALS
    cluster.advance(1000)
    assert state(cluster[1]).leader in (1, 2, 3)
    for number in (1, 2, 3):
        empty(cluster, number)
    cluster.advance(2 * CHECK_MS)
    assert state(cluster[1]).isr == (1, 2, 3)
    assert write(cluster, state(cluster[1]).leader, b"b") == (0, 1)
    assert_same(cluster, 1, 2, 3)


def test_a_disk_that_is_full_again_and_again_is_tried_less_and_less_often() -> None:
    """A quota, or inodes: the free space says that there is room."""
    cluster = Cluster(1)
    create_replicated(cluster.connect(1), [1])
    fill(cluster, 1)
    directory = cluster[1].node.directory
    directory.measure = lambda: (1000, 500)
    waits = []
    for _ in range(8):
        assert write(cluster, 1, b"b") == STORAGE_ERROR
        began = cluster.now_ms
        while directory.is_offline:
            cluster.advance(1000)
        waits.append(cluster.now_ms - began)
    assert waits[:3] == [CHECK_MS, 2 * CHECK_MS, 4 * CHECK_MS]
    assert waits[-1] == LONGEST_CHECK_MS
    assert sum("is full" in report for report in cluster[1].reports) == 8
    empty(cluster, 1)
    cluster.advance(RELAPSE_MS)
    cluster[1].files.capacity = cluster[1].files.used
    assert write(cluster, 1, b"b") == STORAGE_ERROR
    cluster.advance(CHECK_MS)
    assert not directory.is_offline, "a new beginning"


def test_a_broker_that_was_started_again_is_offline_when_its_disk_is_still_full(cluster: Cluster) -> None:
    fill(cluster, 1)
    write(cluster, 1, b"b")
    cluster.restart(1)
    assert not cluster[1].node.directory.is_offline
    assert write(cluster, 2, b"b") == (0, 1), "the follower finds its disk full again"
    assert cluster[1].node.directory.is_offline
    assert state(cluster[1]).isr == (2, 3)


def _by_reading(cluster: Cluster) -> None:
    cluster.connect(1).send(fetch("t", 0), 11)


def _by_writing(cluster: Cluster) -> None:
    write(cluster, 1, b"b")


@pytest.mark.parametrize("touch", [_by_reading, _by_writing])
def test_a_disk_that_fails_ends_the_broker_whose_only_one_it_is(
    cluster: Cluster, touch: Callable[[Cluster], None]
) -> None:
    cluster[1].files.is_failing = True
    try:
        touch(cluster)
    except OSError:
        cluster.connect(1)  # the driver reads the files of an answer itself; the node hears of it with the next event
    assert "the only log directory" in (cluster[1].fatal or "")
    assert "input/output error" in (cluster[1].fatal or "")
    cluster.kill(1)
    assert state(cluster[2]).leader == 2
    assert write(cluster, 2, b"b") == (0, 1)
    cluster[1].files.is_failing = False
    cluster.start(1)
    assert state(cluster[2]).isr == (1, 2, 3)
    assert replica(cluster[1]).log_end_offset == 2
