"""Requests about one partition, as conversations ask them of several brokers in every version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from oncelog.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from oncelog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from oncelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.peers.clients.sweep.wire import batch

TIMEOUT_MS: Final = 10_000
PREFERRED, UNCLEAN = 0, 1


def produce(
    topic: str,
    topic_id: bytes,
    *values: bytes,
    partition: int = 0,
    acks: int = -1,
    records: bytes | None = None,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """One batch to one partition, named by name and id: versions have one or the other."""
    data = PartitionProduceData(index=partition, records=records or batch(*(values or (b"value",))))
    return ProduceRequest(
        acks=acks,
        timeout_ms=TIMEOUT_MS,
        transactional_id=transactional_id,
        topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])],
    )


def fetch(topic: str, topic_id: bytes, *, whole: dict[str, Any] | None = None, **fields: Any) -> FetchRequest:
    """A fetch of one partition that does not wait; ``fields`` are the partition's, ``whole`` the request's."""
    partition = FetchPartition(**{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000_000, **fields})
    request = FetchTopic(topic=topic, topic_id=topic_id, partitions=[partition])
    return FetchRequest(
        topics=[request], **{"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 10_000_000, **(whole or {})}
    )


def list_offsets(topic: str, timestamp: int = -1, *, epoch: int = -1, partition: int = 0, **fields: Any) -> Any:
    """ListOffsets of one partition."""
    request = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    topics = [ListOffsetsTopic(name=topic, partitions=[request])]
    return ListOffsetsRequest(**{"replica_id": -1, "topics": topics, "timeout_ms": TIMEOUT_MS, **fields})


def end_of_epoch(topic: str, leader_epoch: int, *, epoch: int = -1, partition: int = 0, replica_id: int = -1) -> Any:
    """OffsetForLeaderEpoch of one partition."""
    offset = OffsetForLeaderPartition(partition=partition, current_leader_epoch=epoch, leader_epoch=leader_epoch)
    topics = [OffsetForLeaderTopic(topic=topic, partitions=[offset])]
    return OffsetForLeaderEpochRequest(replica_id=replica_id, topics=topics)


def delete_records(topic: str, offset: int, partition: int = 0) -> DeleteRecordsRequest:
    """DeleteRecords of one partition."""
    request = DeleteRecordsPartition(partition_index=partition, offset=offset)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[request])], timeout_ms=TIMEOUT_MS)


def describe_producers(topic: str, *partitions: int) -> DescribeProducersRequest:
    """DescribeProducers of a topic's partitions, of the first when none is named."""
    return DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=list(partitions or (0,)))])


def metadata(*names: str, **fields: bool) -> MetadataRequest:
    """Metadata of topics by name, without creating any."""
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False, **fields)


def elect(kind: int, *partitions: tuple[str, int], **fields: int) -> ElectLeadersRequest:
    """ElectLeaders of partitions, of all when none is named."""
    requests = [TopicPartitions(topic=topic, partitions=[index]) for topic, index in partitions] or None
    return ElectLeadersRequest(election_type=kind, topic_partitions=requests, **fields)


def create(name: str, *replicas: Sequence[int], validate_only: bool = False, **fields: Any) -> CreateTopicsRequest:
    """CreateTopics of one topic with these replicas of its partitions; ``fields`` are the topic's."""
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=list(each)) for index, each in enumerate(replicas)
    ]
    numbers = {"num_partitions": -1, "replication_factor": -1}
    topic = CreatableTopic(**{"name": name, "assignments": assignments, **numbers, **fields})
    return CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=validate_only)
