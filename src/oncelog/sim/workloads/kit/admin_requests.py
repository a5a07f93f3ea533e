"""Requests of administrators, each as one call: topics, partitions, configurations, producers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from oncelog.base.ids import TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.errors import BrokerRefused
from oncelog.sim.workloads.kit.routing import leader_of
from oncelog.sim.workloads.kit.workload import Topic
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

TIMEOUT_MS: Final = 10_000
_TOPIC: Final = 2
_SET: Final = 0


async def create_topic(client: AsyncClient, topic: Topic) -> None:
    """Raises BrokerRefused."""
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()]
    factor = topic.replication_factor
    wanted = CreatableTopic(
        name=topic.name, num_partitions=topic.partitions, replication_factor=factor, configs=configs
    )
    response = await client.request(CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS))
    _check(response.topics[0].error_code, f"create {topic.name}")


async def delete_topic(client: AsyncClient, name: str) -> None:
    """Raises BrokerRefused."""
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=TIMEOUT_MS)
    response = await client.request(request)
    _check(response.responses[0].error_code, f"delete {name}")


async def add_partitions(client: AsyncClient, name: str, count: int) -> None:
    """Raises BrokerRefused."""
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=None)
    response = await client.request(CreatePartitionsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS))
    _check(response.results[0].error_code, f"partitions of {name}")


async def alter_topic(client: AsyncClient, name: str, configs: Mapping[str, str]) -> None:
    """Raises BrokerRefused."""
    altered = [AlterableConfig(name=key, config_operation=_SET, value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=name, configs=altered)
    response = await client.request(IncrementalAlterConfigsRequest(resources=[resource]))
    _check(response.responses[0].error_code, f"configuration of {name}")


async def delete_records(client: AsyncClient, partition: TopicPartition, before: int) -> int:
    """The log's new start. Raises BrokerRefused."""
    wanted = DeleteRecordsPartition(partition_index=partition.partition, offset=before)
    topic = DeleteRecordsTopic(name=partition.topic, partitions=[wanted])
    leader = await leader_of(client, partition)
    response = await client.request(DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), broker=leader)
    answer = response.topics[0].partitions[0]
    _check(answer.error_code, f"records of {partition}")
    return answer.low_watermark


async def move_replicas(client: AsyncClient, partition: TopicPartition, replicas: Sequence[int] | None) -> int:
    """Begin to move a partition to these brokers; None gives up the move under way. The error code."""
    wanted = None if replicas is None else list(replicas)
    place = ReassignablePartition(partition_index=partition.partition, replicas=wanted)
    topic = ReassignableTopic(name=partition.topic, partitions=[place])
    response = await client.request(AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))
    return response.error_code or response.responses[0].partitions[0].error_code


async def elect_preferred(client: AsyncClient, partition: TopicPartition) -> int:
    """Elect the first replica of a partition. The error code."""
    asked = TopicPartitions(topic=partition.topic, partitions=[partition.partition])
    response = await client.request(ElectLeadersRequest(topic_partitions=[asked], timeout_ms=TIMEOUT_MS))
    return response.error_code or response.replica_election_results[0].partition_result[0].error_code


async def producers_of(client: AsyncClient, partition: TopicPartition) -> list[ProducerState]:
    """The producers that the partition remembers. Raises BrokerRefused."""
    topic = TopicRequest(name=partition.topic, partition_indexes=[partition.partition])
    leader = await leader_of(client, partition)
    response = await client.request(DescribeProducersRequest(topics=[topic]), broker=leader)
    answer = response.topics[0].partitions[0]
    _check(answer.error_code, f"producers of {partition}")
    return answer.active_producers


def _check(code: int, what: str) -> None:
    if code:
        raise BrokerRefused(code, what)
