"""FindCoordinator, versions 0 to 6 (KIP-98, KIP-699, KIP-890, KIP-932): the coordinator of a group, a transactional id,
or a share partition (``group:topicId:partition``).

A request that finds no internal topic creates it, and waits; Apache Kafka answers COORDINATOR_NOT_AVAILABLE meanwhile.
From version 4 on there are several keys. Only brokers ask for share coordinators, from version 6 on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE, TopicName
from oncelog.core.controller.image.model import PartitionImage
from oncelog.core.share_state.model import parse_coordinator_key
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.leaders import until_elected
from oncelog.handlers.broker.waits import Steps
from oncelog.handlers.topics.creation import ensure_internal_topic
from oncelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the internal topic could not be created, or its partition has no live leader",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not allowed to describe the group",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not allowed to describe the transactional id",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "a share partition's key, and not a broker: ClusterAction is needed",
    ErrorCode.INVALID_REQUEST: "a key type that does not exist, a share partition's before version 6, or a malformed "
    "key of one",
}

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
SHARE_KEY: Final = 2
_TOPICS: Final = {GROUP_KEY: CONSUMER_OFFSETS, TRANSACTION_KEY: TRANSACTION_STATE, SHARE_KEY: SHARE_GROUP_STATE}
"""The internal topic whose partitions coordinate the keys of a type."""
_KEYS_SINCE: Final = 4
_SHARE_SINCE: Final = 6
_MALFORMED: Final = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an"
    " incompatible broker. See the broker logs for more details."
)
_MESSAGES: Final = {
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.INVALID_REQUEST: _MALFORMED,
}
"""Apache Kafka's messages, sent up to version 3 ("NONE" included)."""


def handle(request: FindCoordinatorRequest, context: Context) -> Steps[FindCoordinatorResponse]:
    keys = request.coordinator_keys if context.version >= _KEYS_SINCE else [request.key]
    refusals = {key: _refusal(request.key_type, key, context) for key in keys}
    topic = _TOPICS.get(request.key_type, CONSUMER_OFFSETS)
    accepted = {key: _hashed(request.key_type, key) for key in keys if refusals[key] is ErrorCode.NONE}
    if accepted:
        yield from ensure_internal_topic(context.cluster, topic)
        yield from until_elected(lambda: _coordinating(accepted.values(), topic, context), context)
    coordinators = [
        _locate(key, accepted[key], topic, context) if key in accepted else _none(key, refusals[key]) for key in keys
    ]
    if context.version >= _KEYS_SINCE:
        for coordinator in coordinators:
            coordinator.error_message = _message_of(request.key_type, coordinator)
        return FindCoordinatorResponse(coordinators=coordinators)
    (single,) = coordinators
    return FindCoordinatorResponse(
        error_code=single.error_code,
        error_message=_MESSAGES[ErrorCode(single.error_code)],
        node_id=single.node_id,
        host=single.host,
        port=single.port,
    )


def _message_of(key_type: int, coordinator: Coordinator) -> str:
    """Apache Kafka has a message only for what fails as a whole."""
    if coordinator.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return "Cluster authorization failed."
    return "" if GROUP_KEY <= key_type <= SHARE_KEY else _MALFORMED


def _hashed(key_type: int, key: str) -> str:
    """The text whose hash chooses the partition: a share partition's key in its own form."""
    return parse_coordinator_key(key).coordinator_key if key_type == SHARE_KEY else key


def _refusal(key_type: int, key: str, context: Context) -> ErrorCode:
    if key_type == GROUP_KEY:
        allowed = context.allows_group(Operation.DESCRIBE, key)
        return ErrorCode.NONE if allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED
    if key_type == TRANSACTION_KEY:
        allowed = context.allows_transactional_id(Operation.DESCRIBE, key)
        return ErrorCode.NONE if allowed else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if key_type != SHARE_KEY or context.version < _SHARE_SINCE:
        return ErrorCode.INVALID_REQUEST
    if not context.allows_cluster(Operation.CLUSTER_ACTION):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    try:
        parse_coordinator_key(key)
    except ValueError:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _coordinating(keys: Iterable[str], name: TopicName, context: Context) -> Iterator[PartitionImage]:
    topic = context.cluster.image.topics.get(name)
    count = 0 if topic is None else len(topic.partitions)
    if topic is not None and count:
        yield from (topic.partitions[coordinator_partition(key, count)] for key in keys)


def _none(key: str, error: ErrorCode) -> Coordinator:
    return Coordinator(key=key, node_id=-1, port=-1, error_code=error)


def _locate(key: str, hashed: str, name: TopicName, context: Context) -> Coordinator:
    image = context.cluster.image
    topic = image.topics.get(name)
    if topic is None or not topic.partitions:
        return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    leader = topic.partitions[coordinator_partition(hashed, len(topic.partitions))].leader
    if leader == context.cluster.broker_id:
        host, port = context.listener
        return Coordinator(key=key, node_id=leader, host=host, port=port)
    broker = image.brokers.get(leader)
    is_gone = broker is None or broker.fenced or leader in context.cluster.failed_brokers
    address = None if broker is None or is_gone else context.address_of(broker)
    if address is None:
        return _none(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    host, port = address
    return Coordinator(key=key, node_id=leader, host=host, port=port)
