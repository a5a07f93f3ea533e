"""The cluster as each broker describes it: brokers, topics, coordinators; with all brokers up and with one down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.describe_cluster import DescribeClusterRequest
from oncelog.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.wire.messages.unregister_broker import UnregisterBrokerRequest
from tests.conformance.golden.cluster.conversation import Conversation
from tests.conformance.golden.cluster.corpus import GROUP_COORDINATOR, TRANSACTION_COORDINATOR
from tests.conformance.golden.cluster.readiness import until_coordinators
from tests.conformance.golden.cluster.requests import create
from tests.peers.clients.sweep.wire import NOWHERE, versions

_TOPICS: Final[dict[str, dict[int, tuple[int, ...]]]] = {
    "v-three": {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)},
    "v-two": {0: (3, 2), 1: (2, 1)},
    "v-one": {0: (3,), 1: (1,)},
}
_BY_ID_SINCE: Final = 12
_KEYS_SINCE: Final = 4


def _metadata(talk: Conversation) -> None:
    ids = {name: talk.topic(name, assignment) for name, assignment in _TOPICS.items()}
    _ask_metadata(talk, ids)
    talk.stop(3)
    talk.until_partition("v-two", leader=2, isr=(2,))
    talk.until_partition("v-one", leader=-1)
    talk.until_partition("v-three", 2, leader=1, isr=(1, 2))
    _ask_metadata(talk, ids)
    talk.start(3)
    for name, assignment in _TOPICS.items():
        for index, replicas in assignment.items():
            talk.until_partition(name, index, isr=replicas)
    _ask_metadata(talk, ids)


def _ask_metadata(talk: Conversation, ids: dict[str, bytes]) -> None:
    for version in versions(MetadataRequest):
        for request in _metadata_requests(version, ids):
            talk.ask_each(request, version)


def _metadata_requests(version: int, ids: dict[str, bytes]) -> Iterator[MetadataRequest]:
    operations = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    named = [MetadataRequestTopic(name=name) for name in ids]
    yield MetadataRequest(topics=named, allow_auto_topic_creation=False)
    yield MetadataRequest(topics=named, allow_auto_topic_creation=False, **operations)
    if version > 0:
        yield MetadataRequest(topics=None, allow_auto_topic_creation=False)
        yield MetadataRequest(topics=[], allow_auto_topic_creation=False)
    unknown = [MetadataRequestTopic(name="v-nowhere"), MetadataRequestTopic(name="__consumer_offsets")]
    if version >= 4:
        yield MetadataRequest(topics=unknown, allow_auto_topic_creation=False)
    if version >= _BY_ID_SINCE:
        by_id = [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in (*ids.values(), NOWHERE)]
        yield MetadataRequest(topics=by_id, allow_auto_topic_creation=False)


def _brokers(talk: Conversation) -> None:
    _ask_brokers(talk)
    talk.stop(2)
    _ask_brokers(talk)
    talk.start(2)
    _ask_brokers(talk)


def _ask_brokers(talk: Conversation) -> None:
    for version in versions(DescribeClusterRequest):
        talk.ask_each(DescribeClusterRequest(), version)
        talk.ask_each(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
        for endpoint_type in (2, 3) if version >= 1 else ():
            talk.ask_each(DescribeClusterRequest(endpoint_type=endpoint_type), version)
        if version >= 2:
            talk.ask_each(DescribeClusterRequest(include_fenced_brokers=True), version)


def _unregistered(talk: Conversation) -> None:
    """A broker that is down is unregistered, and registers again when it is started."""
    talk.topic("v-forgotten", {0: (1, 3)})
    talk.topic("v-alone", {0: (3,)})
    for broker_id in (-1, 9):
        talk.ask_each(UnregisterBrokerRequest(broker_id=broker_id), 0)
    talk.stop(3)
    talk.until_partition("v-forgotten", leader=1, isr=(1,))
    talk.until_partition("v-alone", leader=-1)
    talk.ask_each(DescribeClusterRequest(include_fenced_brokers=True), 2)
    for asked_of in (2, 1):
        talk.ask(asked_of, UnregisterBrokerRequest(broker_id=3), 0)
        for broker_id in talk.running:
            talk.until(
                broker_id,
                DescribeClusterRequest(include_fenced_brokers=True),
                2,
                lambda answer: [broker.broker_id for broker in answer.brokers] == [1, 2],
                "knows two",
            )
        talk.ask_each(DescribeClusterRequest(include_fenced_brokers=True), 2)
    for replicas in ((1, 3), (3, 1)):
        talk.ask(1, create("v-refused", replicas), 7)
    _ask_forgotten(talk)
    talk.start(3)
    talk.until_partition("v-forgotten", leader=1, isr=(1, 3))
    talk.until_partition("v-alone", leader=3, isr=(3,))
    talk.ask_each(DescribeClusterRequest(include_fenced_brokers=True), 2)
    _ask_forgotten(talk)


def _ask_forgotten(talk: Conversation) -> None:
    names = ("v-forgotten", "v-alone")
    talk.ask_each(MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names]), 12)
    talk.ask_each(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names]), 0)


def _api_versions(talk: Conversation) -> None:
    for version in versions(ApiVersionsRequest):
        talk.ask_each(ApiVersionsRequest(client_software_name="sweep", client_software_version="1.0"), version)


def _topic_partitions(talk: Conversation) -> None:
    for name, assignment in _TOPICS.items():
        talk.topic(name, assignment)
    talk.topic("v-safe", {0: (3, 2), 1: (2, 1)}, min_insync_replicas="2")
    _ask_partitions(talk)
    talk.stop(3)
    talk.until_partition("v-safe", leader=2, isr=(2,))
    talk.until_partition("v-safe", 1, leader=2, isr=(1, 2))
    talk.until_partition("v-one", leader=-1)
    _ask_partitions(talk)
    talk.start(3)
    talk.until_partition("v-safe", leader=2, isr=(2, 3))
    talk.until_partition("v-safe", 1, leader=2, isr=(1, 2))
    talk.until_partition("v-one", leader=3, isr=(3,))
    for index, replicas in _TOPICS["v-three"].items():
        talk.until_partition("v-three", index, isr=replicas)
    talk.until_partition("v-two", isr=(2, 3))
    _ask_partitions(talk)


def _ask_partitions(talk: Conversation) -> None:
    named = [TopicRequest(name=name) for name in ("v-two", "v-three", "v-one", "v-safe", "v-nowhere")]
    talk.ask_each(DescribeTopicPartitionsRequest(topics=named), 0)
    for limit in (1, 3):
        talk.ask_each(DescribeTopicPartitionsRequest(topics=named, response_partition_limit=limit), 0)
    cursor = Cursor(topic_name="v-three", partition_index=1)
    talk.ask_each(DescribeTopicPartitionsRequest(topics=named, response_partition_limit=3, cursor=cursor), 0)


def _coordinators(talk: Conversation) -> None:
    _ask_coordinators(talk)
    talk.stop(GROUP_COORDINATOR)
    until_coordinators(talk, TRANSACTION_COORDINATOR)
    _ask_coordinators(talk)
    talk.start(GROUP_COORDINATOR)
    talk.until_partition("__consumer_offsets", leader=TRANSACTION_COORDINATOR, isr=(1, 2, 3))
    until_coordinators(talk, TRANSACTION_COORDINATOR)
    _ask_coordinators(talk)


def _ask_coordinators(talk: Conversation) -> None:
    for version in versions(FindCoordinatorRequest):
        for key_type in (0, 1):
            for key in ("group", ""):
                if version < _KEYS_SINCE:
                    talk.ask_each(FindCoordinatorRequest(key=key, key_type=key_type), version)
                else:
                    keys = [key, "other"]
                    talk.ask_each(FindCoordinatorRequest(coordinator_keys=keys, key_type=key_type), version)


CONVERSATIONS: Final[dict[str, Callable[[Conversation], None]]] = {
    "metadata": _metadata,
    "brokers": _brokers,
    "unregistered": _unregistered,
    "api-versions": _api_versions,
    "topic-partitions": _topic_partitions,
    "find-coordinator": _coordinators,
}
