"""The partitions that a Fetch asks for: those that may be read, and the answers for the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicId, TopicName, TopicPartition
from oncelog.base.units import INT64_MAX
from oncelog.core.controller.names import name_refusal
from oncelog.core.sessions.fetch import FINAL_EPOCH
from oncelog.core.sessions.fetch_cache import FetchPartition, PartitionKey, Requester
from oncelog.handlers.api import CLUSTER_NAME, Operation, ResourceType
from oncelog.handlers.fetch.params import UNKNOWN
from oncelog.wire.messages.fetch import PartitionData

if TYPE_CHECKING:
    from oncelog.handlers.broker.context import Context
    from oncelog.handlers.broker.ports import ClusterView
    from oncelog.handlers.fetch.params import Replica
    from oncelog.wire.messages.fetch import FetchRequest

NO_RECORDS: Final = b""


def partitions_of(request: FetchRequest, context: Context, *, by_id: bool) -> Iterator[FetchPartition]:
    """The partitions that a request names; by the topic's id or its name."""
    for topic in request.topics:
        topic_id = TopicId(topic.topic_id)
        name = topic_name(context.cluster, topic_id) if by_id else TopicName(topic.topic)
        for partition in topic.partitions:
            asked = FetchPartition(
                topic_id,
                name,
                partition.partition,
                partition.fetch_offset,
                partition.partition_max_bytes,
                partition.current_leader_epoch,
                partition.last_fetched_epoch,
            )
            asked.log_start_offset = partition.log_start_offset
            if partition.high_watermark != INT64_MAX:  # a follower's own (KIP-1166)
                asked.told_high_watermark = partition.high_watermark
            yield asked


def forgotten_of(request: FetchRequest, *, by_id: bool) -> Iterator[PartitionKey]:
    """The partitions that are to leave the session."""
    for topic in request.forgotten_topics_data:
        key: TopicId | TopicName = TopicId(topic.topic_id) if by_id else TopicName(topic.topic)
        for partition in topic.partitions:
            yield key, partition


def requester_of(request: FetchRequest, context: Context, replica: Replica | None, *, by_id: bool) -> Requester | None:
    """The client of a session. None for a request that no session is kept of: it names a topic that cannot exist, or
    claims to come from a broker and does not."""
    cluster = context.cluster
    if request.session_epoch == FINAL_EPOCH:
        return None
    if not by_id:
        topics = cluster.image.topics
        if any(topic.topic not in topics and name_refusal(topic.topic) for topic in request.topics):
            return None
    if replica is None:
        return Requester(context.connection_id)
    is_follower = (
        replica.broker_id != cluster.broker_id
        and replica.broker_id in cluster.image.brokers
        and context.would_allow_cluster(Operation.CLUSTER_ACTION)
    )
    return Requester(context.connection_id, replica.broker_id) if is_follower else None


class SortedPartitions:
    """Partitions of a request, sorted into those to read and the answers for the others."""

    __slots__ = ("_allowed", "_context", "_is_broker", "readable", "refused", "replica")

    def __init__(self, context: Context, replica: Replica | None) -> None:
        self._context = context
        self.replica = replica
        self._is_broker = replica is not None and context.allows(
            Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        )
        self._allowed: dict[TopicName, bool] = {}
        self.readable: list[tuple[TopicPartition, FetchPartition]] = []
        self.refused: list[tuple[FetchPartition, PartitionData]] = []

    def sort_out(self, partitions: Iterable[FetchPartition]) -> None:
        """Put each where it belongs."""
        cluster = self._context.cluster
        for asked in partitions:
            topic = asked.topic
            if topic is None:
                topic = asked.topic = topic_name(cluster, asked.topic_id)
            if topic is None and (self._is_broker or self.replica is None):
                self.refused.append((asked, failed(asked, ErrorCode.UNKNOWN_TOPIC_ID, read=False)))
                continue
            topic = topic or TopicName("")
            name = TopicPartition(topic, asked.partition)
            if not self._allows(topic):
                self.refused.append((asked, failed(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED, read=False)))
            elif not cluster.image.has_partition(name):
                self.refused.append((asked, failed(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, read=False)))
            else:
                self.readable.append((name, asked))

    def _allows(self, topic: TopicName) -> bool:
        allowed = self._allowed.get(topic)
        if allowed is None:
            allowed = self._is_broker
            if self.replica is None:
                allowed = self._context.allows_topic(Operation.READ, topic)
            self._allowed[topic] = allowed
        return allowed


def topic_name(cluster: ClusterView, topic_id: bytes) -> TopicName | None:
    """The name of the topic with this id, None when there is none."""
    return cluster.image.topic_names.get(TopicId(topic_id))


def failed(asked: FetchPartition, error_code: ErrorCode, *, read: bool = True) -> PartitionData:
    """The answer for a partition that could not be read. ``read``: it was found and reading it failed."""
    return PartitionData(
        partition_index=asked.partition,
        error_code=error_code,
        high_watermark=UNKNOWN,
        last_stable_offset=UNKNOWN,
        log_start_offset=UNKNOWN,
        # Apache Kafka answers null where it tried to read and an empty list where it did not.
        aborted_transactions=None if read else [],
        records=NO_RECORDS,
    )
