"""A Fetch request independent of its version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, TopicId, TopicName, TopicPartition
from oncelog.base.units import INT64_MAX
from oncelog.core.configs.keys import RACK_AWARE_SELECTOR
from oncelog.core.controller.topic_names import name_refusal
from oncelog.core.sessions.fetch import FINAL_EPOCH
from oncelog.core.sessions.fetch_cache import FetchPartition, PartitionKey, Requester
from oncelog.handlers.api import CLUSTER_NAME, Operation, ResourceType
from oncelog.wire.messages.fetch import PartitionData

if TYPE_CHECKING:
    from oncelog.handlers.broker.context import Context
    from oncelog.handlers.broker.ports import ClusterView
    from oncelog.wire.messages.fetch import FetchRequest

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
UNKNOWN: Final = -1
NO_RECORDS: Final = b""
_FROM_FOLLOWERS_SINCE: Final = 11


class Replica(NamedTuple):
    """The follower that fetches, in the registration ``broker_epoch`` (−1: not given)."""

    broker_id: BrokerId
    broker_epoch: int


@dataclass(slots=True)
class FetchParams:
    min_bytes: int
    """Bytes that a waiting request waits for; ``max_bytes`` at most."""
    max_bytes: int
    """Bytes of the whole response."""
    read_committed: bool
    replica: Replica | None = None
    """The follower that fetches; None for consumers."""
    replica_has_no_session: bool = False
    """A follower without a session gets the owners of all open transactions, and not only of those that begin in what
    it reads."""
    reads_from_followers: bool = False
    """The consumer can read from followers (KIP-392)."""
    rack_id: str = ""
    """The consumer's rack; empty: it reads from the leader."""
    racks: Mapping[BrokerId, str | None] | None = None
    """The racks of the live brokers; None if consumers are not directed to their rack."""


def replica_of(request: FetchRequest) -> Replica | None:
    state = request.replica_state
    if state is not None and state.replica_id >= 0:
        return Replica(BrokerId(state.replica_id), state.replica_epoch)
    return Replica(BrokerId(request.replica_id), UNKNOWN) if request.replica_id >= 0 else None


def params_of(request: FetchRequest, context: Context, replica: Replica | None) -> FetchParams:
    """The parameters of a request, within the broker's limits and the client's quotas."""
    max_bytes = _max_bytes(request, context, replica)
    is_consumer = replica is None
    racks = _racks(context) if request.rack_id and is_consumer else None
    return FetchParams(
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        read_committed=request.isolation_level == READ_COMMITTED and is_consumer,
        replica=replica,
        replica_has_no_session=request.session_epoch <= 0,
        reads_from_followers=is_consumer and context.version >= _FROM_FOLLOWERS_SINCE,
        rack_id=request.rack_id,
        racks=racks,
    )


def _max_bytes(request: FetchRequest, context: Context, replica: Replica | None) -> int:
    limit: int = min(request.max_bytes, context.cluster.config.get("fetch.max.bytes"))
    quotas = context.cluster.quotas
    if quotas.enabled and replica is None:
        quota_limit = quotas.max_fetch_bytes(context)
        limit = limit if quota_limit is None else min(limit, quota_limit)
    return limit


def _racks(context: Context) -> Mapping[BrokerId, str | None] | None:
    if context.cluster.config.get("replica.selector.class") != RACK_AWARE_SELECTOR:
        return None
    lost = context.cluster.failed_brokers
    return {
        broker_id: broker.rack
        for broker_id, broker in context.cluster.image.brokers.items()
        if not broker.fenced and broker_id not in lost
    }


def partitions_of(request: FetchRequest, context: Context, *, by_id: bool) -> Iterator[FetchPartition]:
    for topic in request.topics:
        topic_id = TopicId(topic.topic_id)
        name = topic_name(context.cluster, topic_id) if by_id else TopicName(topic.topic)
        for partition in topic.partitions:
            fetch = FetchPartition(
                topic_id,
                name,
                partition.partition,
                partition.fetch_offset,
                partition.partition_max_bytes,
                partition.current_leader_epoch,
                partition.last_fetched_epoch,
            )
            fetch.log_start_offset = partition.log_start_offset
            if partition.high_watermark != INT64_MAX:  # sent by followers (KIP-1166)
                fetch.sent_high_watermark = partition.high_watermark
            yield fetch


def forgotten_of(request: FetchRequest, *, by_id: bool) -> Iterator[PartitionKey]:
    for topic in request.forgotten_topics_data:
        key: TopicId | TopicName = TopicId(topic.topic_id) if by_id else TopicName(topic.topic)
        for partition in topic.partitions:
            yield key, partition


def requester_of(request: FetchRequest, context: Context, replica: Replica | None, *, by_id: bool) -> Requester | None:
    cluster = context.cluster
    if request.session_epoch == FINAL_EPOCH:
        # No session is kept of a final request, for a topic that cannot exist, or for an impostor of a broker.
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
        and context.allows_cluster_silently(Operation.CLUSTER_ACTION)
    )
    return Requester(context.connection_id, replica.broker_id) if is_follower else None


class SortedPartitions:
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
        cluster = self._context.cluster
        for fetch in partitions:
            topic = fetch.topic
            if topic is None:
                topic = fetch.topic = topic_name(cluster, fetch.topic_id)
            if topic is None and (self._is_broker or self.replica is None):
                self.refused.append((fetch, failed(fetch, ErrorCode.UNKNOWN_TOPIC_ID, read=False)))
                continue
            topic = topic or TopicName("")
            partition = TopicPartition(topic, fetch.partition)
            if not self._allows(topic):
                self.refused.append((fetch, failed(fetch, ErrorCode.TOPIC_AUTHORIZATION_FAILED, read=False)))
            # Checked after the right: a requester without it does not learn whether the topic exists.
            elif not cluster.image.has_partition(partition):
                self.refused.append((fetch, failed(fetch, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, read=False)))
            else:
                self.readable.append((partition, fetch))

    def _allows(self, topic: TopicName) -> bool:
        allowed = self._allowed.get(topic)
        if allowed is None:
            allowed = self._is_broker
            if self.replica is None:
                allowed = self._context.allows_topic(Operation.READ, topic)
            self._allowed[topic] = allowed
        return allowed


def topic_name(cluster: ClusterView, topic_id: bytes) -> TopicName | None:
    return cluster.image.topic_names.get(TopicId(topic_id))


def failed(fetch: FetchPartition, error_code: ErrorCode, *, read: bool = True) -> PartitionData:
    """The answer for a partition that was not read. ``read``: it exists, and reading it failed."""
    return PartitionData(
        partition_index=fetch.partition,
        error_code=error_code,
        high_watermark=UNKNOWN,
        last_stable_offset=UNKNOWN,
        log_start_offset=UNKNOWN,
        # Apache Kafka answers null where it tried to read and an empty list where it did not.
        aborted_transactions=None if read else [],
        records=NO_RECORDS,
    )
