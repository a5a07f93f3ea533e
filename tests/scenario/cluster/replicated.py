"""Replicated topics and what is in their replicas, for the scenarios of a cluster."""

from __future__ import annotations

from collections.abc import Iterable

from oncelog.base.ids import BrokerId, LeaderEpoch, TopicName, TopicPartition
from oncelog.base.tree import Set
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.model import PartitionImage
from oncelog.records.batch import iter_headers
from oncelog.storage.log.partition_log import PartitionLog
from oncelog.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.create_topics import CreatableTopicConfig as Config
from tests.scenario.cluster.cluster import Cluster, ClusterDriver
from tests.scenario.node.driver import Peer
from tests.scenario.node.requests import PRODUCE_VERSION, batch, produce, produced
from tests.unit.storage.replication import log_bytes

PARTITION = TopicPartition(TopicName("t"), 0)


def create_replicated(peer: Peer, brokers: list[int], name: str = "t", **configs: str) -> None:
    """Create a topic of one partition on ``brokers``, the first of which leads."""
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=brokers)],
        configs=[Config(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    response = peer.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
    assert [t.error_code for t in response.topics] == [0], response


def state(driver: ClusterDriver, partition: TopicPartition = PARTITION) -> PartitionImage:
    """A partition in a broker's image."""
    result = driver.node.cluster.image.partition(partition)
    assert result is not None
    return result


def replica(driver: ClusterDriver, partition: TopicPartition = PARTITION) -> PartitionLog:
    """A broker's log of a partition, led there or not."""
    return driver.node.logs.logs[partition]


def contents(log: PartitionLog) -> list[tuple[int, int]]:
    """(base offset, leader epoch) of every batch in a log."""
    return [(header.base_offset, header.partition_leader_epoch) for _, header in iter_headers(log_bytes(log))]


def write(cluster: Cluster, broker_id: int, *values: bytes, acks: int = -1, topic: str = "t") -> tuple[int, int]:
    """Produce to a leader; (error code, base offset), which must be told at once."""
    peer = cluster.connect(broker_id)
    return produced(peer.ask(produce(topic, batch(cluster[broker_id], *values), acks=acks), PRODUCE_VERSION))


def replace_unheard(
    cluster: Cluster,
    old: ClusterDriver,
    elected: ClusterDriver,
    isr: Iterable[int],
    partition: TopicPartition = PARTITION,
) -> None:
    """Let another broker be elected while the leader hears nothing of the tree, until ``hold_changes`` is False."""
    old.hold_changes = True
    image, broker = state(elected, partition), elected.node.cluster.image.brokers[BrokerId(elected.broker_id)]
    newer = image._replace(
        leader=broker.broker_id,
        leader_epoch=LeaderEpoch(image.leader_epoch + 1),
        leader_broker_epoch=broker.epoch,
        isr=tuple(BrokerId(number) for number in isr),
        elr=(),
    )
    path = layout.state_path(partition.topic, partition.partition)
    cluster.tree.session().commit([Set(path, layout.state_value(newer, 1), image.version)])
    cluster.settle()
    cluster.advance(1_000)


def assert_same(cluster: Cluster, *brokers: int) -> None:
    """All replicas have the same bytes and the same high watermark."""
    logs = [replica(cluster[broker]) for broker in brokers]
    assert {log_bytes(log) for log in logs} == {log_bytes(logs[0])}
    assert {log.high_watermark for log in logs} == {logs[0].log_end_offset}
