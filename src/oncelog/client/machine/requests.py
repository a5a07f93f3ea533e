"""Builds requests that name many partitions, with topic ids and leader epochs from the cluster view."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import INT64_MAX
from oncelog.client.machine.metadata import ClusterView
from oncelog.wire.chunks import Records
from oncelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

LAST_PRODUCE_VERSION_BY_NAME: Final = 12
LATEST: Final = -1
EARLIEST: Final = -2


def offset_query(timestamp_ms: int) -> int:
    """The timestamp that asks ListOffsets for the first record at or after a time.

    Negative ones have special meanings there, so a time before 1970 asks for the start of the log, which also has the
    records without a time.
    """
    return EARLIEST if timestamp_ms < 0 else min(timestamp_ms, INT64_MAX)


def produce_request(
    view: ClusterView, batches: Mapping[TopicPartition, Records], acks: int, timeout_ms: int
) -> ProduceRequest:
    """A Produce request with one batch per partition."""
    by_topic: dict[TopicName, list[PartitionProduceData]] = {}
    for partition, batch in batches.items():
        by_topic.setdefault(partition.topic, []).append(PartitionProduceData(index=partition.partition, records=batch))
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(name=topic, topic_id=bytes(view.topic_id(topic)), partition_data=data)
            for topic, data in by_topic.items()
        ],
    )


def produce_version_limit(view: ClusterView, partitions: Iterable[TopicPartition]) -> int | None:
    """The highest Produce version for these partitions: 13 and later need topic ids."""
    names = view.topic_ids(partition.topic for partition in partitions)
    return LAST_PRODUCE_VERSION_BY_NAME if names is None else None


def list_offsets_request(
    view: ClusterView, timestamps: Mapping[TopicPartition, int], partitions: list[TopicPartition], read_committed: bool
) -> ListOffsetsRequest:
    """A ListOffsets request for ``partitions``; ``offset_query`` turns a time into a timestamp in ``timestamps``."""
    by_topic: dict[TopicName, list[ListOffsetsPartition]] = {}
    for partition in partitions:
        info = view.partition(partition)
        by_topic.setdefault(partition.topic, []).append(
            ListOffsetsPartition(
                partition_index=partition.partition,
                current_leader_epoch=-1 if info is None else info.leader_epoch,
                timestamp=timestamps[partition],
            )
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(read_committed),
        topics=[ListOffsetsTopic(name=topic, partitions=parts) for topic, parts in by_topic.items()],
    )
