"""Asks which replicas may lead a partition without loss although none of them is in sync (KIP-966).

Apache Kafka from 4.1 takes the last in-sync replicas out of the in-sync set when they go, and keeps them as eligible
leader replicas: an empty in-sync set does not mean that records are lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import ClientError
from oncelog.client.programs import Cluster, Program, operation
from oncelog.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest

PARTITIONS_PER_REQUEST: Final = 2_000
MAX_REQUESTS: Final = 10


@dataclass(frozen=True, slots=True)
class Eligible:
    """``replicas`` have all records that consumers could read. ``last_known`` had them before they restarted without
    a clean shutdown."""

    replicas: tuple[int, ...]
    last_known: tuple[int, ...]


NONE_ELIGIBLE: Final = Eligible((), ())


@operation
def eligible_leaders(cluster: Cluster, partitions: Iterable[TopicPartition]) -> Program[dict[TopicPartition, Eligible]]:
    """The eligible leaders of the partitions that have any; empty for a cluster that does not tell them."""
    selected = set(partitions)
    eligible: dict[TopicPartition, Eligible] = {}
    if not selected:
        return eligible
    topics = [TopicRequest(name=name) for name in sorted({partition.topic for partition in selected})]
    cursor: Cursor | None = None
    try:
        link = yield from cluster.link()
        if not link.versions.supports(DescribeTopicPartitionsRequest):
            return eligible
        for _ in range(MAX_REQUESTS):
            request = DescribeTopicPartitionsRequest(
                topics=topics, response_partition_limit=PARTITIONS_PER_REQUEST, cursor=cursor
            )
            response = yield from cluster.request(request)
            for topic in response.topics:
                for row in topic.partitions:
                    partition = TopicPartition(TopicName(topic.name or ""), row.partition_index)
                    replicas, last_known = row.eligible_leader_replicas or (), row.last_known_elr or ()
                    if partition in selected and (replicas or last_known):
                        eligible[partition] = Eligible(tuple(replicas), tuple(last_known))
            cursor = response.next_cursor
            if cursor is None:
                break
    except ClientError:
        return eligible  # Explanations are useful without it.
    return eligible
