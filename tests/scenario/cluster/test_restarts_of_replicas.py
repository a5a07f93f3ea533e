"""Replicas after a death of their broker: what a power cut took from beside the records, and who leads alone."""

from __future__ import annotations

from oncelog.base.ids import BrokerId, LeaderEpoch, TopicName, TopicPartition
from oncelog.base.tree import Set
from oncelog.core.controller.image import layout
from oncelog.storage.file_names import PARTITION_METADATA
from oncelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.scenario.cluster.cluster import Cluster
from tests.scenario.cluster.replicated import PARTITION, create_replicated, replica, state, write
from tests.scenario.node.requests import PRODUCE_VERSION, batch, produce, produced
from tests.unit.storage.replication import log_bytes

LATEST = -1


def elect(cluster: Cluster, leader: int) -> None:
    """Put another leader into the tree, as a controller does."""
    session = cluster.tree.session()
    image = state(cluster.running[0])
    broker = cluster.running[0].node.cluster.image.brokers.get(BrokerId(leader))
    epoch = -1 if broker is None else broker.epoch
    elected = image._replace(
        leader=BrokerId(leader), leader_epoch=LeaderEpoch(image.leader_epoch + 1), leader_broker_epoch=epoch
    )
    path = layout.state_path(PARTITION.topic, PARTITION.partition)
    session.commit([Set(path, layout.state_value(elected, 1), image.version)])
    cluster.settle()


def latest(cluster: Cluster, broker_id: int) -> int:
    """The end that readers of the partition see."""
    asked = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    answer = cluster.connect(broker_id).ask(request, 7).topics[0].partitions[0]
    assert not answer.error_code, answer
    return answer.offset


def test_the_only_replica_vouches_for_its_log_when_it_is_elected_after_its_start() -> None:
    cluster = Cluster(2)
    create_replicated(cluster.connect(1), [1])
    assert write(cluster, 1, b"a", b"b") == (0, 0)
    cluster.kill(1)
    elect(cluster, -1)
    cluster.start(1)
    elect(cluster, 1)
    assert replica(cluster[1]).high_watermark == 2
    assert latest(cluster, 1) == 2


def test_followers_know_their_topics_where_a_power_cut_took_the_files_that_say_them() -> None:
    cluster = Cluster(2)
    others = [TopicPartition(TopicName(name), 0) for name in ("u", "v")]
    for name in ("t", "u", "v"):
        create_replicated(cluster.connect(1), [1, 2], name, min_insync_replicas="2")
    cluster.kill(2)
    for partition in (PARTITION, *others):
        cluster[2].files.remove(f"{partition}/{PARTITION_METADATA}")
    cluster.start(2)
    for partition in (PARTITION, *others):
        peer = cluster.connect(1)
        peer.send(produce(partition.topic, batch(cluster[1], b"a"), timeout_ms=60_000), PRODUCE_VERSION)
        assert produced(peer.responses.popleft()) == (0, 0)
        first, second = (replica(cluster[broker], partition) for broker in (1, 2))
        assert log_bytes(first) == log_bytes(second)
        assert second.topic_id == first.topic_id
