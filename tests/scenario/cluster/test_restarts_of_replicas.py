"""Replicas after a death of their broker: what a power cut took from beside the records, and who leads alone."""

from __future__ import annotations

from oncelog.base.ids import BrokerId, LeaderEpoch, TopicName, TopicPartition
from oncelog.base.tree import Set
from oncelog.core.controller.image import layout
from oncelog.storage.file_names import PARTITION_METADATA
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest
from oncelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.scenario.cluster.cluster import Cluster
from tests.scenario.cluster.replicated import PARTITION, assert_same, create_replicated, replica, state, write
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
    partition = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[partition])])
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


def forget_topic_id(cluster: Cluster, broker_id: int) -> None:
    """Leave the file that says a log's topic as a power cut may leave it that came before it was on the disk."""
    file = cluster[broker_id].files.open(f"{PARTITION}/{PARTITION_METADATA}")
    file.truncate(0)
    file.close()


def test_a_log_of_a_deleted_topic_is_not_taken_for_that_of_the_next_one_of_its_name() -> None:
    cluster = Cluster(3)
    create_replicated(cluster.connect(1), [1, 2, 3])
    assert write(cluster, 1, b"old", b"older") == (0, 0)
    cluster.kill(3)
    forget_topic_id(cluster, 3)
    cluster.connect(1).ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    create_replicated(cluster.connect(1), [1, 2, 3])
    cluster.advance(1_000)
    assert [write(cluster, 1, value) for value in (b"a", b"b", b"c")] == [(0, 0), (0, 1), (0, 2)]
    cluster.start(3)
    cluster.advance(2_000)
    assert_same(cluster, 1, 2, 3)
    (told,) = [report for report in cluster[3].reports if "set aside" in report]
    assert told.startswith("t-0 has no topic id, and other replicas have the records: it is set aside as t-0.")


def test_a_log_that_is_counted_on_is_kept_though_it_does_not_say_its_topic() -> None:
    cluster = Cluster(2)
    create_replicated(cluster.connect(1), [1])
    assert write(cluster, 1, b"a", b"b") == (0, 0)
    cluster.kill(1)
    forget_topic_id(cluster, 1)
    cluster.start(1)
    cluster.advance(2_000)
    assert latest(cluster, 1) == 2
    assert replica(cluster[1]).topic_id == cluster[2].node.cluster.image.topics[PARTITION.topic].topic_id


def test_a_log_that_does_not_say_its_topic_leaves_the_set_if_others_have_it() -> None:
    cluster = Cluster(2)
    create_replicated(cluster.connect(1), [1, 2])
    assert write(cluster, 1, b"a") == (0, 0)
    cluster.advance(1_000)
    for broker_id in (1, 2):
        cluster.kill(broker_id)
    forget_topic_id(cluster, 1)
    cluster.start(1)
    assert state(cluster[1]).isr == (2,)
    assert replica(cluster[1]).log_end_offset == 0
    cluster.start(2)
    cluster.advance(2_000)
    assert set(state(cluster[1]).isr) == {1, 2}
    assert_same(cluster, 1, 2)
