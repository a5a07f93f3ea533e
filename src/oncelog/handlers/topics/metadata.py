"""Metadata, versions 0 to 13 (KIP-4, KIP-430, KIP-516, KIP-526, KIP-899): brokers, topics, and partition leaders.

Every client polls it, so a topic's entry is cached while the topic does not change, the encoded response to "all
topics" while nothing does. A missing topic is created if broker and client allow it; an unknown id creates nothing.

A request for a topic whose leader has just failed waits for the election, at most 500 ms. Requests for many or all
topics do not: their partitions have no leader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_BROKER, NO_TOPIC_ID, BrokerId, TopicId, TopicName
from oncelog.core.controller.image.cluster_image import Brokers, PartitionImage, TopicImage, is_alive
from oncelog.core.controller.replicas.replica_sets import described_sets
from oncelog.core.controller.topic_names import is_internal, name_refusal
from oncelog.handlers.api import CLUSTER_NAME, Operation, ResourceType
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.leaders import reachable_brokers, until_elected
from oncelog.handlers.broker.limits import PartitionCharges
from oncelog.handlers.broker.waits import NextSlice, Steps
from oncelog.handlers.topics.creation import auto_create
from oncelog.wire.chunks import join_chunks
from oncelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from oncelog.wire.writer import Writer

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic, and it may not be created",
    ErrorCode.UNKNOWN_TOPIC_ID: "no topic has this id",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a topic cannot have this name",
    ErrorCode.UNKNOWN_SERVER_ERROR: "neither name nor id (version 12), which Apache Kafka does not expect",
    ErrorCode.INVALID_REQUEST: "a null name or an id before version 12",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no live leader, or the client's quota does not allow the topic "
    "to be created now: ask again",
    ErrorCode.REPLICA_NOT_AVAILABLE: "a replica is down, and the version cannot say which (version 0)",
    ErrorCode.LISTENER_NOT_FOUND: "the leader has no listener of the name by which the client came",
    ErrorCode.INVALID_REPLICATION_FACTOR: "an automatic creation asks for more replicas than there are brokers",
    ErrorCode.POLICY_VIOLATION: "an automatic creation of too many partitions at once",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to describe or create the topic",
}

_IDS_SINCE: Final = 12
_MANY: Final = 1000
_NOT_SHOWN: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID)
"""These errors hide whether the topic exists, and so its allowed operations."""
_CLUSTER_OPERATIONS_VERSIONS: Final = range(8, 11)
_TOPIC_OPERATIONS_SINCE: Final = 8
_LISTENERS_SINCE: Final = 6
_OFFLINE_REPLICAS_SINCE: Final = 1
"""Earlier versions leave out replicas that are down."""


def handle(request: MetadataRequest, context: Context) -> Steps[MetadataResponse]:
    if request.topics is None or (context.version == 0 and not request.topics):
        return _all_topics(request, context)
    if context.version < _IDS_SINCE and any(t.name is None or t.topic_id != NO_TOPIC_ID for t in request.topics):
        return _refuse(request, ErrorCode.INVALID_REQUEST)
    ids = dict.fromkeys(TopicId(topic.topic_id) for topic in request.topics if topic.topic_id != NO_TOPIC_ID)
    if ids:
        return _by_id(request, context, list(ids))
    if any(topic.name is None for topic in request.topics):
        return _refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR)
    names = list(dict.fromkeys(TopicName(topic.name or "") for topic in request.topics))
    if context.cluster.failed_brokers and len(names) <= _MANY:
        yield from until_elected(lambda: _partitions(names, context), context)
    return (yield from _by_name(request, context, names))


def _partitions(names: Sequence[TopicName], context: Context) -> Iterator[PartitionImage]:
    topics = context.cluster.image.topics
    return (partition for name in names if name in topics for partition in topics[name].partitions)


def _by_name(request: MetadataRequest, context: Context, names: Sequence[TopicName]) -> Steps[MetadataResponse]:
    refused = {
        name: ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for name in names
        if not context.allows_topic(Operation.DESCRIBE, name)
    }
    image = context.cluster.image
    missing = [name for name in names if name not in refused and name not in image.topics]
    for name in missing:
        if name_refusal(name) is not None:
            refused[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
    # An invalid name is never created.
    missing = [name for name in missing if name not in refused]
    if missing and request.allow_auto_topic_creation and context.cluster.config.get("auto.create.topics.enable"):
        return (yield from _create_then_answer(request, context, names, missing, refused))
    return _respond(request, context, _named(context, names, refused))


def _create_then_answer(
    request: MetadataRequest,
    context: Context,
    names: Sequence[TopicName],
    missing: Sequence[TopicName],
    refused: dict[TopicName, ErrorCode],
) -> Steps[MetadataResponse]:
    if len(missing) > _MANY:
        yield NextSlice()
    if not context.allows_cluster_silently(Operation.CREATE):
        for name in missing:
            if not context.allows_topic(Operation.CREATE, name):
                refused[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    creatable = [name for name in missing if name not in refused]
    if creatable:
        charges = PartitionCharges(context.cluster.quotas, context, strict=True)
        refusals = yield from auto_create(context.cluster, creatable, charges.charge)
        for created, refusal in refusals.items():
            is_throttled = refusal.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            refused[TopicName(created)] = ErrorCode.LEADER_NOT_AVAILABLE if is_throttled else refusal.error_code
    response = _respond(request, context, [])
    for start in range(0, len(names), _MANY):
        if len(names) > _MANY:
            yield NextSlice()
        topics = _named(context, names[start : start + _MANY], refused)
        response.topics += _with_operations(request, context, topics)
    return response


def _named(
    context: Context, names: Sequence[TopicName], refused: Mapping[TopicName, ErrorCode]
) -> list[MetadataResponseTopic]:
    image = context.cluster.image
    topics = []
    for name in names:
        topic = image.topics.get(name)
        error = refused.get(name)
        if error is None and topic is not None:
            topics.append(_topic(context, topic))
        else:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if error is None else error
            topics.append(MetadataResponseTopic(error_code=error, name=name, is_internal=is_internal(name)))
    return topics


def _by_id(request: MetadataRequest, context: Context, ids: Sequence[TopicId]) -> MetadataResponse:
    image = context.cluster.image
    topics = []
    for topic_id in ids:
        topic = image.topic_of_id(topic_id)
        if topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID
        elif context.allows_topic(Operation.DESCRIBE, topic.name):
            topics.append(_topic(context, topic))
            continue
        else:
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topics.append(MetadataResponseTopic(error_code=error, name=None, topic_id=topic_id))
    return _respond(request, context, topics)


def _all_topics(request: MetadataRequest, context: Context) -> MetadataResponse:
    image = context.cluster.image
    version = context.version
    visible = [name for name in image.topics if context.allows_topic_silently(Operation.DESCRIBE, name)]
    plain = not request.include_cluster_authorized_operations and not request.include_topic_authorized_operations
    shareable = plain and len(visible) == len(image.topics)
    gone = (context.cluster.failed_brokers, frozenset(context.cluster.departed_brokers))
    key = ("metadata of all topics", version, context.listener, context.listener_name, gone)
    cached: MetadataResponse | None = image.derived.get(key) if shareable else None
    if cached is not None:
        # A copy, for the throttle time is set on it.
        return _Shared.of(cached) if context.cluster.quotas.enabled else cached
    topics = [_topic(context, image.topics[name]) for name in sorted(visible)]
    response = _respond(request, context, topics)
    if shareable:
        response = image.derived[key] = _Shared.of(response)
    return response


def _respond(request: MetadataRequest, context: Context, topics: list[MetadataResponseTopic]) -> MetadataResponse:
    response = MetadataResponse(
        brokers=_brokers(context),
        cluster_id=context.cluster.cluster_id,
        controller_id=context.cluster.image.controller_id,
        topics=_with_operations(request, context, topics),
    )
    if request.include_cluster_authorized_operations and context.version in _CLUSTER_OPERATIONS_VERSIONS:
        allowed = context.allows_cluster(Operation.DESCRIBE)
        response.cluster_authorized_operations = (
            context.allowed_operations(ResourceType.CLUSTER, CLUSTER_NAME) if allowed else 0
        )
    return response


def _with_operations(
    request: MetadataRequest, context: Context, topics: list[MetadataResponseTopic]
) -> list[MetadataResponseTopic]:
    if request.include_topic_authorized_operations and context.version >= _TOPIC_OPERATIONS_SINCE:
        return [topic if topic.error_code in _NOT_SHOWN else _with_its_operations(context, topic) for topic in topics]
    return topics


def _with_its_operations(context: Context, topic: MetadataResponseTopic) -> MetadataResponseTopic:
    changed = copy(topic)
    changed.topic_authorized_operations = context.allowed_operations(ResourceType.TOPIC, topic.name or "")
    return changed


def _brokers(context: Context) -> list[MetadataResponseBroker]:
    """Unfenced brokers with an address on the client's listener; briefly also brokers that have died."""
    brokers = []
    for broker_id, broker in sorted({**context.cluster.departed_brokers, **context.cluster.image.brokers}.items()):
        address = None if broker.fenced else context.address_of(broker)
        if address is not None:
            host, port = address
            brokers.append(MetadataResponseBroker(node_id=broker_id, host=host, port=port, rack=broker.rack))
    return brokers


def _topic(context: Context, topic: TopicImage) -> MetadataResponseTopic:
    """A topic's entry, cached while the topic does not change: do not modify it."""
    image = context.cluster.image
    reachable = reachable_brokers(context)
    lost = context.cluster.failed_brokers
    if reachable is not image.brokers:
        missing = context.version >= _LISTENERS_SINCE
        unreachable = ErrorCode.LISTENER_NOT_FOUND if missing else ErrorCode.LEADER_NOT_AVAILABLE
        described = _describe(topic, image.brokers, reachable, unreachable)
    else:
        described = image.remembered(topic, _describe)
    described = _without_leaders(described, lost)
    return described if context.version >= _OFFLINE_REPLICAS_SINCE else _without_offline(described)


def _without_offline(topic: MetadataResponseTopic) -> MetadataResponseTopic:
    """The topic as the first clients expect it: replicas that are down are left out, with an error."""
    if not any(entry.offline_replicas for entry in topic.partitions):
        return topic
    partitions = []
    for partition in topic.partitions:
        isr = [replica for replica in partition.isr_nodes if replica not in partition.offline_replicas]
        is_incomplete = partition.error_code == ErrorCode.NONE and partition.offline_replicas
        entry = MetadataResponsePartition(
            error_code=ErrorCode.REPLICA_NOT_AVAILABLE if is_incomplete else partition.error_code,
            partition_index=partition.partition_index,
            leader_id=partition.leader_id,
            replica_nodes=[replica for replica in partition.replica_nodes if replica not in partition.offline_replicas],
            isr_nodes=isr,
        )
        partitions.append(entry)
    return MetadataResponseTopic(name=topic.name, partitions=partitions)


def _without_leaders(described: MetadataResponseTopic, lost: frozenset[BrokerId]) -> MetadataResponseTopic:
    if not lost or not any(partition.leader_id in lost for partition in described.partitions):
        return described
    changed = copy(described)
    changed.partitions = [
        _without_leader(partition) if partition.leader_id in lost else partition for partition in described.partitions
    ]
    return changed


def _without_leader(partition: MetadataResponsePartition) -> MetadataResponsePartition:
    changed = copy(partition)
    changed.error_code, changed.leader_id = ErrorCode.LEADER_NOT_AVAILABLE, NO_BROKER
    return changed


def _describe(
    topic: TopicImage,
    brokers: Brokers,
    reachable: Brokers | None = None,
    unreachable: ErrorCode = ErrorCode.LEADER_NOT_AVAILABLE,
) -> MetadataResponseTopic:
    """A topic's entry. ``unreachable`` is the error of a partition whose live leader is not among ``reachable``."""
    reachable = brokers if reachable is None else reachable
    partitions = []
    for index, partition in enumerate(topic.partitions):
        described = _partition(index, partition, brokers, reachable)
        if described.leader_id == NO_BROKER and is_alive(brokers, partition.leader):
            described.error_code = unreachable
        partitions.append(described)
    return MetadataResponseTopic(
        name=topic.name, topic_id=topic.topic_id, is_internal=is_internal(topic.name), partitions=partitions
    )


def _partition(
    index: int, partition: PartitionImage, brokers: Brokers, reachable: Brokers
) -> MetadataResponsePartition:
    leads = is_alive(reachable, partition.leader)
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if leads else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=partition.leader if leads else NO_BROKER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=described_sets(partition, brokers)[0],
        offline_replicas=[replica for replica in partition.replicas if not is_alive(reachable, replica)],
    )


def _refuse(request: MetadataRequest, error: ErrorCode) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(error_code=error, name=topic.name or "", topic_id=topic.topic_id)
        for topic in request.topics or ()
    ]
    return MetadataResponse(topics=topics, error_code=error)


class _Shared(MetadataResponse):
    """A response that many requests of one version share: encoded once, unless its client is throttled."""

    __slots__ = ("_encoded",)
    _encoded: list[bytes]
    """Empty until the first encoding."""

    @classmethod
    def of(cls, response: MetadataResponse) -> _Shared:
        """A shared copy of a response."""
        shared = cls(
            brokers=response.brokers,
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
            topics=response.topics,
        )
        shared._encoded = response._encoded if isinstance(response, _Shared) else []
        return shared

    def write(self, writer: Writer, version: int) -> None:
        # The throttle time is the client's own.
        if self.throttle_time_ms:
            super().write(writer, version)
            return
        if not self._encoded:
            own: Any = self.writer(version)
            super().write(own, version)
            self._encoded.append(join_chunks(own.chunks()))
        writer.buffer += self._encoded[0]
