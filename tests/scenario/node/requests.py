"""Requests as the scenarios need them, short."""

from __future__ import annotations

from oncelog.base.ids import TopicPartition
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

FETCH_VERSION = 11
PRODUCE_VERSION = 9
BROKER = 4


def create_topic(peer, name: str, partitions: int = 1, **configs: str):
    """Create a topic; its configs with ``_`` for ``.``."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    response = peer.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
    assert [t.error_code for t in response.topics] == [0], response


def alter_brokers(peer, **configs: str) -> None:
    """Set configs for all brokers while they run; ``_`` for ``.``."""
    changes = [AlterableConfig(name=key.replace("_", "."), config_operation=0, value=configs[key]) for key in configs]
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=changes)
    response = peer.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert [item.error_code for item in response.responses] == [0], response


def batch(driver, *values: bytes, **options) -> bytes:
    """A batch of records without keys, stamped with the driver's time."""
    return bytes(build_batch([Record(i, driver.now_ms, None, value, ()) for i, value in enumerate(values)], **options))


def produce(topic: str, records: bytes, partition: int = 0, *, acks: int = -1, timeout_ms: int = 1000):
    """A Produce request for one partition."""
    data = [PartitionProduceData(index=partition, records=records)]
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )


def produced(response) -> tuple[int, int]:
    """(error code, base offset) of a response for one partition."""
    partition = response.responses[0].partition_responses[0]
    return partition.error_code, partition.base_offset


def fetch(topic: str, offset: int, partition: int = 0, *, max_wait_ms: int = 500, min_bytes: int = 1):
    """A Fetch request for one partition, outside any session."""
    expected = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 24,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[expected])],
    )


def fetched(response) -> tuple[int, int, bytes]:
    """(error code, high watermark, records) of a response for one partition."""
    partition = response.responses[0].partitions[0]
    return partition.error_code, partition.high_watermark, bytes(partition.records or b"")


def log_of(driver, topic: str, partition: int = 0):
    """The node's log of a partition."""
    return driver.node.partitions.leader_log(TopicPartition(topic, partition)).log
