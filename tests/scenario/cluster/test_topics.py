"""Topics are deleted, made anew, widened and configured on all brokers, on those that were away too."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.scenario.cluster.cluster import Cluster, ClusterDriver
from tests.scenario.cluster.replicated import PARTITION, assert_same, contents, create_replicated, replica, state, write

TOPIC, BROKER = 2, 4


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(3)
    create_replicated(cluster.connect(1), [1, 2, 3])
    write(cluster, 1, b"old", b"old")
    return cluster


def delete(cluster: Cluster, number: int = 2) -> None:
    response = cluster.connect(number).ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    assert [item.error_code for item in response.responses] == [0]


def configure(cluster: Cluster, kind: int, name: str, key: str, value: str) -> None:
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[AlterableConfig(name=key, config_operation=0, value=value)],
    )
    response = cluster.connect(3).ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert [item.error_code for item in response.responses] == [0]


def directories(driver: ClusterDriver) -> list[str]:
    """The directories of ``t`` on a broker's disk, without those that are being removed or were set aside."""
    return [name for name in driver.files.list("") if name.startswith("t-") and "." not in name]


def test_a_deleted_topic_is_gone_on_every_broker(cluster: Cluster) -> None:
    delete(cluster)
    assert [directories(driver) for driver in cluster.running] == [[], [], []]
    assert [driver.node.logs.logs.get(PARTITION) for driver in cluster.running] == [None] * 3


def test_a_broker_that_was_down_when_a_topic_was_deleted_sets_its_log_aside(cluster: Cluster) -> None:
    cluster.kill(3)
    delete(cluster)
    cluster.start(3)
    assert directories(cluster[3]) == []
    assert any(name.endswith("-stray") for name in cluster[3].files.list("")), cluster[3].files.list("")


@pytest.mark.parametrize("way", ["cut off", "slow disk"])
def test_a_topic_made_anew_under_its_name_has_nothing_of_the_old_one(cluster: Cluster, way: str) -> None:
    if way == "cut off":
        cluster.cut(1, 3)
    else:
        cluster[3].hold_syncs = True
    write(cluster, 1, b"more", acks=1)
    delete(cluster)
    create_replicated(cluster.connect(2), [1, 2, 3])
    assert state(cluster[1]).leader_epoch == 0
    write(cluster, 1, b"new", acks=1)
    if way == "cut off":
        cluster.heal(1, 3)
    else:
        cluster[3].hold_syncs = False
        cluster[3].release()
    cluster.advance(1_000)
    assert_same(cluster, 1, 2, 3)
    assert contents(replica(cluster[3])) == [(0, 0)]


def test_a_topic_made_anew_on_other_brokers_leaves_no_log_on_the_first(cluster: Cluster) -> None:
    cluster.kill(1)
    delete(cluster)
    create_replicated(cluster.connect(2), [2, 3])
    cluster.start(1)
    assert directories(cluster[1]) == []
    assert write(cluster, 2, b"new") == (ErrorCode.NONE, 0)
    assert_same(cluster, 2, 3)


def test_new_partitions_are_copied_too(cluster: Cluster) -> None:
    cluster.kill(3)
    topics = [CreatePartitionsTopic(name="t", count=4, assignments=None)]
    response = cluster.connect(1).ask(CreatePartitionsRequest(topics=topics, timeout_ms=1000), 3)
    assert response.results[0].error_code == ErrorCode.NONE, "the one that is down counts"
    cluster.start(3)
    cluster.advance(100)
    assert len(cluster[2].node.cluster.image.topics[TopicName("t")].partitions) == 4
    for driver in cluster.running:
        assert directories(driver) == ["t-0", "t-1", "t-2", "t-3"]
        assert TopicPartition(TopicName("t"), 3) in driver.node.logs.logs


def test_configs_change_on_every_broker_while_it_runs_and_on_the_next_start(cluster: Cluster) -> None:
    cluster.kill(3)
    cluster.start(3)
    configure(cluster, TOPIC, "t", "segment.bytes", "2097152")
    configure(cluster, BROKER, "", "log.retention.ms", "7777")
    for driver in cluster.running:
        config = replica(driver).config
        assert (config.segment_bytes, config.retention_ms) == (2097152, 7777)
    cluster.kill(2)
    configure(cluster, TOPIC, "t", "segment.bytes", "3145728")
    cluster.start(2)
    assert replica(cluster[2]).config.segment_bytes == 3145728
