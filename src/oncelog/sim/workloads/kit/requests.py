"""Hand-made requests, each sent to the right broker: a partition's leader, a coordinator, or every broker.

With a single broker, any connection will do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.client.aio.client import ANY, TRANSACTION_KEY, AsyncClient
from oncelog.client.errors import BrokerRefused
from oncelog.client.programs.cluster import Broker
from oncelog.sim.workloads.kit.workload import Topic
from oncelog.wire.message import Request, Response
from oncelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from oncelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from oncelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.wire.messages.describe_producers import DescribeProducersRequest, ProducerState, TopicRequest
from oncelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

R = TypeVar("R", bound=Response)


TIMEOUT_MS: Final = 10_000
_TOPIC: Final = 2
_SET: Final = 0


def has_several_brokers(client: AsyncClient) -> bool:
    """True if the client has several bootstrap servers."""
    return len(client.bootstrap) > 1


async def leader_of(client: AsyncClient, partition: TopicPartition) -> Broker:
    """The current leader of a partition. Raises UnknownTopic, BrokerRefused."""
    if not has_several_brokers(client):
        return ANY
    await client.metadata([partition.topic])
    return await client.leader(partition)


async def transaction_coordinator_of(client: AsyncClient, transactional_id: str) -> Broker:
    if not has_several_brokers(client):
        return ANY
    client.forget_coordinator(transactional_id, TRANSACTION_KEY)
    return await client.coordinator(transactional_id, TRANSACTION_KEY)


async def request_all(client: AsyncClient, message: Request[R], error_of: Callable[[R], int]) -> list[R]:
    """Send a request to all brokers. In a cluster, wait until none is loading its logs."""
    if not has_several_brokers(client):
        return [await client.request(message)]
    await client.refresh()
    return [await _request_until_loaded(client, message, broker, error_of) for broker in sorted(client.view.brokers)]


async def _request_until_loaded(
    client: AsyncClient, message: Request[R], broker: int, error_of: Callable[[R], int]
) -> R:
    async def attempt() -> R:
        response = await client.request(message, broker=broker)
        code = error_of(response)
        if code != ErrorCode.NONE:
            raise BrokerRefused(code, f"{type(message).__name__} to broker {broker}")
        return response

    return await client.retrying(attempt)


async def create_topics(client: AsyncClient, topics: Sequence[Topic]) -> None:
    """Raises BrokerRefused for the first failed topic."""
    request = CreateTopicsRequest(timeout_ms=TIMEOUT_MS)
    for topic in topics:
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()]
        request.topics.append(
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                configs=configs,
            )
        )
    for created in (await client.request(request)).topics:
        _check(created.error_code, f"create {created.name}")


async def delete_topic(client: AsyncClient, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=TIMEOUT_MS)
    response = await client.request(request)
    _check(response.responses[0].error_code, f"delete {name}")


async def add_partitions(client: AsyncClient, name: str, count: int) -> None:
    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    response = await client.request(CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))
    _check(response.results[0].error_code, f"partitions of {name}")


async def alter_topic(client: AsyncClient, name: str, configs: Mapping[str, str]) -> None:
    altered = [AlterableConfig(name=key, config_operation=_SET, value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=name, configs=altered)
    response = await client.request(IncrementalAlterConfigsRequest(resources=[resource]))
    _check(response.responses[0].error_code, f"configuration of {name}")


async def delete_records(client: AsyncClient, partition: TopicPartition, before: int) -> int:
    """Returns the new log start. Raises BrokerRefused."""
    partition_request = DeleteRecordsPartition(partition_index=partition.partition, offset=before)
    topic = DeleteRecordsTopic(name=partition.topic, partitions=[partition_request])
    leader = await leader_of(client, partition)
    response = await client.request(DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), broker=leader)
    answer = response.topics[0].partitions[0]
    _check(answer.error_code, f"records of {partition}")
    return answer.low_watermark


async def move_replicas(client: AsyncClient, partition: TopicPartition, replicas: Sequence[int] | None) -> int:
    """Start to move a partition to these brokers; None cancels the move. Returns the error code."""
    replica_ids = None if replicas is None else list(replicas)
    place = ReassignablePartition(partition_index=partition.partition, replicas=replica_ids)
    topic = ReassignableTopic(name=partition.topic, partitions=[place])
    response = await client.request(AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))
    return response.error_code or response.responses[0].partitions[0].error_code


async def elect_preferred(client: AsyncClient, partition: TopicPartition) -> int:
    """Elect the first replica of a partition. Returns the error code."""
    partitions = TopicPartitions(topic=partition.topic, partitions=[partition.partition])
    response = await client.request(ElectLeadersRequest(topic_partitions=[partitions], timeout_ms=TIMEOUT_MS))
    return response.error_code or response.replica_election_results[0].partition_result[0].error_code


async def producers_of(client: AsyncClient, partition: TopicPartition) -> list[ProducerState]:
    """The producers known to the partition. Raises BrokerRefused."""
    topic = TopicRequest(name=partition.topic, partition_indexes=[partition.partition])
    leader = await leader_of(client, partition)
    response = await client.request(DescribeProducersRequest(topics=[topic]), broker=leader)
    answer = response.topics[0].partitions[0]
    _check(answer.error_code, f"producers of {partition}")
    return answer.active_producers


def _check(code: int, operation: str) -> None:
    if code:
        raise BrokerRefused(code, operation)
