"""Makes a given replica the leader, with the requests of Apache Kafka's tools."""

from __future__ import annotations

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.client.errors import BrokerRefused
from oncelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions


def put_first(client: Client, partition: TopicPartition, broker_id: int) -> None:
    """Make ``broker_id`` the preferred leader of a partition. Raises BrokerRefused if it has no replica."""
    client.retrying(lambda: _put_first(client, partition, broker_id))


def elect_preferred(client: Client, partition: TopicPartition) -> None:
    """Elect the preferred leader, which must be in sync. Raises BrokerRefused."""
    client.retrying(lambda: _elect_preferred(client, partition))


def _put_first(client: Client, partition: TopicPartition, broker_id: int) -> None:
    client.metadata([partition.topic])
    info = client.topic(partition.topic).partitions.get(partition.partition)
    if info is None or broker_id not in info.replicas:
        raise BrokerRefused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"broker {broker_id} as leader of {partition}", "no replica"
        )
    if info.replicas[0] == broker_id:
        return
    replicas = [broker_id, *(replica for replica in info.replicas if replica != broker_id)]
    partition_request = ReassignablePartition(partition_index=partition.partition, replicas=replicas)
    topic = ReassignableTopic(name=partition.topic, partitions=[partition_request])
    response = client.request(AlterPartitionReassignmentsRequest(topics=[topic]), broker="controller")
    outcomes = [
        (result.error_code, result.error_message) for topic in response.responses for result in topic.partitions
    ]
    _check([(response.error_code, response.error_message), *outcomes], f"replicas of {partition}")


def _elect_preferred(client: Client, partition: TopicPartition) -> None:
    partitions = TopicPartitions(topic=partition.topic, partitions=[partition.partition])
    response = client.request(ElectLeadersRequest(topic_partitions=[partitions]), broker="controller")
    results = [result for topic in response.replica_election_results for result in topic.partition_result]
    outcomes = [(result.error_code, result.error_message) for result in results]
    _check([(response.error_code, None), *outcomes], f"leader of {partition}")


def _check(outcomes: list[tuple[int, str | None]], operation: str) -> None:
    for code, message in outcomes:
        if code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
            raise BrokerRefused(code, operation, message)
