"""Describes the KRaft quorum of a cluster: its controllers, and the brokers that follow their log (KIP-595, KIP-642).

Metadata and DescribeCluster of Apache Kafka's brokers name any broker as the controller; only the quorum knows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from oncelog.client.programs import Cluster, Program, operation, raise_for_error
from oncelog.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, ReplicaState, TopicData

METADATA_TOPIC: Final = "__cluster_metadata"
ANSWER_MS: Final = 3_000
"""Brokers forward the request to a controller, and wait long for one that is down."""


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A controller or broker by node id. ``lag`` counts metadata records behind the leader; ``caught_up_ms`` is the
    last time at which it had all of them, None if unknown."""

    node_id: int
    log_end_offset: int
    lag: int
    caught_up_ms: int | None


@dataclass(frozen=True, slots=True)
class Quorum:
    """``leader_id`` is the active controller, None during an election. ``voters`` are controllers; ``observers`` do not
    vote, as brokers."""

    leader_id: int | None
    leader_epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]


@operation
def describe_quorum(cluster: Cluster) -> Program[Quorum | None]:
    """The quorum; None for a cluster without KRaft. Raises BrokerRefused, and RequestTimedOut if no controller
    answers."""
    link = yield from cluster.link()
    if not link.versions.supports(DescribeQuorumRequest):
        return None
    topic = TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])
    response = yield from cluster.request(DescribeQuorumRequest(topics=[topic]), timeout_ms=ANSWER_MS)
    raise_for_error(response, "KRaft quorum")
    for answer in response.topics:
        for partition in answer.partitions:
            raise_for_error(partition, "KRaft quorum")
            end = max((voter.log_end_offset for voter in partition.current_voters), default=0)
            return Quorum(
                partition.leader_id if partition.leader_id >= 0 else None,
                partition.leader_epoch,
                partition.high_watermark,
                [_replica(voter, end) for voter in partition.current_voters],
                [_replica(observer, end) for observer in partition.observers],
            )
    return None


def _replica(state: ReplicaState, end: int) -> QuorumReplica:
    caught_up_ms = state.last_caught_up_timestamp
    return QuorumReplica(
        state.replica_id,
        state.log_end_offset,
        max(0, end - state.log_end_offset),
        caught_up_ms if caught_up_ms >= 0 else None,
    )
