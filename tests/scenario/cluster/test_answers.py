"""Answers of brokers about each other, and of each about itself alone, as Apache Kafka's."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CONSUMER_OFFSETS, TRANSACTION_STATE
from oncelog.node.brokers.link import RECONNECT_BACKOFF_MS
from oncelog.node.cluster.failed_brokers import DEPARTED_MS
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from oncelog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.wire.messages.list_transactions import ListTransactionsRequest
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.scenario.cluster.client import ClusterClient
from tests.scenario.cluster.cluster import Cluster
from tests.scenario.cluster.replicated import create_replicated, replica, write
from tests.scenario.node.driver import Peer
from tests.scenario.node.requests import PRODUCE_VERSION, produce, produced
from tests.scenario.transactions.node_client import GROUP, Client

GROUP_KEY, TRANSACTION_KEY = 0, 1


def described(peer: Peer, version: int) -> Any:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
    return peer.ask(request, version)


def test_who_asks_before_the_election_is_told_of_the_next_leader() -> None:
    cluster = Cluster(3)
    create_replicated(cluster.connect(1), [2, 3, 1])
    peer = cluster.connect(3)
    cluster.advance(RECONNECT_BACKOFF_MS)  # of links that were up for a while another attempt follows at once
    cluster.hold = True
    cluster.kill(2, session_ends=False)
    while not cluster[3].node.cluster.failed_brokers:
        assert cluster.step()
    peer.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 13)
    assert not peer.responses
    cluster.hold = False
    cluster.settle()
    response = peer.responses.popleft()
    (partition,) = response.topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (ErrorCode.NONE, 3, 1)
    assert [broker.node_id for broker in response.brokers] == [1, 2, 3]


class TestMetadata:
    @pytest.mark.parametrize("version", range(14))
    def test_a_partition_without_a_leader(self, version: int) -> None:
        cluster = Cluster(2)
        create_replicated(cluster.connect(1), [2])
        cluster.kill(2)
        response = described(cluster.connect(1), version)
        (topic,) = response.topics
        (partition,) = topic.partitions
        assert (topic.error_code, partition.error_code) == (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)
        replicas = [2] if version > 0 else []
        assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (-1, replicas, [])
        assert [broker.node_id for broker in response.brokers] == [1, 2], "a broker that died is named for a while"
        cluster.advance(DEPARTED_MS)
        assert [broker.node_id for broker in described(cluster.connect(1), version).brokers] == [1]
        if version >= 5:
            assert partition.offline_replicas == [2]
        if version >= 7:
            assert partition.leader_epoch == 1

    @pytest.mark.parametrize("version", range(14))
    def test_a_dead_follower_is_a_replica_yet(self, version: int) -> None:
        cluster = Cluster(3)
        create_replicated(cluster.connect(1), [1, 3, 2])
        cluster.kill(3)
        (partition,) = described(cluster.connect(2), version).topics[0].partitions
        error, replicas = (ErrorCode.NONE, [1, 3, 2]) if version > 0 else (ErrorCode.REPLICA_NOT_AVAILABLE, [1, 2])
        assert (partition.error_code, partition.leader_id) == (error, 1)
        assert (partition.replica_nodes, sorted(partition.isr_nodes)) == (replicas, [1, 2])
        if version >= 5:
            assert partition.offline_replicas == [3]


class TestCoordinators:
    @pytest.mark.parametrize("version", range(7))
    def test_a_coordinator_is_found_through_any_broker_and_not_when_it_is_dead(self, version: int) -> None:
        cluster = Cluster(3)
        client = ClusterClient(cluster)
        self.find(client.peer(1), 4)
        coordinator = client.coordinator(CONSUMER_OFFSETS, GROUP)
        for broker_id in (1, 2, 3):
            match = self.find(client.peer(broker_id), version)
            host = f"broker-{coordinator}"
            assert (match.error_code, match.node_id, match.host, match.port) == (
                ErrorCode.NONE,
                coordinator,
                host,
                9092,
            )
        cluster.kill(coordinator)
        match = self.find(client.peer(cluster.running[0].broker_id), version)
        assert (match.error_code, match.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)

    def find(self, peer: Peer, version: int) -> Any:
        request = FindCoordinatorRequest(key=GROUP, coordinator_keys=[GROUP], key_type=GROUP_KEY)
        response = peer.ask(request, version)
        return response.coordinators[0] if version >= 4 else response

    def test_each_lists_its_own_groups_and_transactions_only(self) -> None:
        cluster = Cluster(3)
        client = ClusterClient(cluster)
        for key_type, key in ((TRANSACTION_KEY, "x"), (GROUP_KEY, GROUP)):
            client.ask(FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type), 4)
        client.run(Client("x").initialise())
        coordinator = client.coordinator(TRANSACTION_STATE, "x")
        for broker_id in (1, 2, 3):
            response = client.peer(broker_id).ask(ListTransactionsRequest(), 1)
            listed = [state.transactional_id for state in response.transaction_states]
            assert (response.error_code, listed) == (ErrorCode.NONE, ["x"] if broker_id == coordinator else [])
            groups = client.peer(broker_id).ask(ListGroupsRequest(), 4)
            assert (groups.error_code, groups.groups) == (ErrorCode.NONE, [])


class TestReplicas:
    def test_each_describes_the_logs_that_it_has_led_or_not(self) -> None:
        cluster = Cluster(3)
        create_replicated(cluster.connect(1), [1, 2])
        write(cluster, 1, b"a", b"b")
        for broker_id in (1, 2, 3):
            (result,) = cluster.connect(broker_id).ask(DescribeLogDirsRequest(topics=None), 4).results
            sizes = {topic.name: [self.values(p) for p in topic.partitions] for topic in result.topics}
            if broker_id == 3:
                assert "t" not in sizes
            else:
                assert sizes["t"] == [(0, replica(cluster[broker_id]).size_bytes, 0, False)]

    @staticmethod
    def values(partition: Any) -> tuple[int, int, int, bool]:
        return (
            partition.partition_index,
            partition.partition_size,
            partition.offset_lag,
            partition.is_future_key,
        )

    def test_records_that_wait_for_followers_hold_up_nobody_who_asks_for_the_end(self) -> None:
        cluster = Cluster(2)
        create_replicated(cluster.connect(1), [1, 2], min_insync_replicas="2")
        assert write(cluster, 1, b"a") == (ErrorCode.NONE, 0)
        cluster.kill(2)
        assert write(cluster, 1, b"b", acks=1) == (ErrorCode.NONE, 1)
        latest = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        asked_ms = cluster.now_ms
        (topic,) = cluster.connect(1).ask(ListOffsetsRequest(replica_id=-1, topics=[latest]), 7).topics
        assert [(partition.error_code, partition.offset) for partition in topic.partitions] == [(ErrorCode.NONE, 1)]
        assert cluster.now_ms == asked_ms

    def test_leaders_and_followers_describe_producers(self) -> None:
        """As in Apache Kafka: kafka-transactions find-hanging --broker-id asks for all replicas of a broker."""
        cluster = Cluster(3)
        create_replicated(cluster.connect(1), [1, 2])
        header = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        records = build_batch([Record(0, cluster.now_ms, None, b"a", ())], **header)
        assert produced(cluster.connect(1).ask(produce("t", records), PRODUCE_VERSION)) == (0, 0)
        cluster.advance(100)
        request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 1])])
        result = {broker: cluster.connect(broker).ask(request, 0).topics[0].partitions for broker in (1, 2, 3)}
        codes = {broker: [partition.error_code for partition in answers] for broker, answers in result.items()}
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == {1: [0, unknown], 2: [0, unknown], 3: [ErrorCode.NOT_LEADER_OR_FOLLOWER, unknown]}
        assert [producer.producer_id for producer in result[2][0].active_producers] == [7]
        assert result[1][0].active_producers == result[2][0].active_producers


@pytest.mark.parametrize(("version", "named"), [(8, []), (9, [0, 3])])
def test_partitions_whose_group_another_broker_coordinates_are_named(version: int, named: list[int]) -> None:
    """librdkafka never asks again for those that are not."""
    cluster = Cluster(2)
    client = ClusterClient(cluster)
    client.ask(FindCoordinatorRequest(coordinator_keys=[GROUP], key_type=GROUP_KEY), 4)
    elsewhere = 3 - client.coordinator(CONSUMER_OFFSETS, GROUP)
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 3])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)])
    (group,) = client.ask(request, version, elsewhere).groups
    assert group.error_code == ErrorCode.NOT_COORDINATOR
    result = [
        (partition.partition_index, partition.error_code) for topic in group.topics for partition in topic.partitions
    ]
    assert result == [(partition, ErrorCode.STALE_MEMBER_EPOCH) for partition in named]
