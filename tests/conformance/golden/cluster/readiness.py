"""A cluster that is ready for a conversation: internal topics are there, and led by the same brokers every time.

Apache Kafka draws lots for where the replicas of a topic go; so they are moved to where the corpus has them.
"""

from __future__ import annotations

from typing import Final

from oncelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.wire.messages.describe_groups import DescribeGroupsRequest
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.metadata import MetadataRequest
from tests.conformance.golden.cluster.conversation import Conversation
from tests.conformance.golden.cluster.corpus import GROUP_COORDINATOR, TRANSACTION_COORDINATOR

_GROUPS, _TRANSACTIONS = 0, 1
_INTERNAL: Final = {
    _GROUPS: ("__consumer_offsets", (GROUP_COORDINATOR, 3, 1)),
    _TRANSACTIONS: ("__transaction_state", (TRANSACTION_COORDINATOR, 1, 2)),
}
_TRANSACTIONAL_ID_NOT_FOUND: Final = 105


def make_ready(talk: Conversation) -> None:
    """Return when every broker knows all others, the coordinators, and has producer ids to give."""
    talk.until_brokers()
    for key_type, (topic, replicas) in _INTERNAL.items():
        _until_coordinator(talk, 1, key_type)
        expected = ReassignablePartition(partition_index=0, replicas=list(replicas))
        talk.look(
            1,
            AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=[expected])]),
            0,
        )
        talk.until_partition(topic, replicas=replicas, isr=replicas)
        talk.look(1, ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=topic, partitions=[0])]), 2)
        talk.until_partition(topic, leader=replicas[0], replicas=replicas, isr=replicas)
    until_coordinators(talk)
    for broker_id in talk.running:
        producer = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        talk.until(broker_id, producer, 4, lambda answer: not answer.error_code, "has producer ids")


def clear(talk: Conversation) -> None:
    """Delete what a conversation has made; returns when no broker has a topic but the internal ones."""
    for broker_id in (2, 3):
        if broker_id not in talk.running:
            talk.start(broker_id)
    everything = MetadataRequest(topics=None)
    names = [topic.name for topic in talk.look(1, everything, 12).topics if not topic.is_internal]
    doomed = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=60_000)
    talk.look(1, doomed, 6)
    for broker_id in talk.running:
        talk.until(
            broker_id, everything, 12, lambda answer: all(topic.is_internal for topic in answer.topics), "is empty"
        )
    talk.settle()


def until_coordinators(
    talk: Conversation, groups: int = GROUP_COORDINATOR, transactions: int = TRANSACTION_COORDINATOR
) -> None:
    """Wait until every broker names these coordinators, and they have read their logs."""
    for key_type, coordinator in ((_GROUPS, groups), (_TRANSACTIONS, transactions)):
        for broker_id in talk.running:
            _until_coordinator(talk, broker_id, key_type, coordinator)
    described = DescribeGroupsRequest(groups=["warm-up"])
    talk.until(groups, described, 5, lambda answer: not answer.groups[0].error_code, "has read its groups")
    talk.until(
        transactions,
        DescribeTransactionsRequest(transactional_ids=["warm-up"]),
        0,
        lambda answer: answer.transaction_states[0].error_code == _TRANSACTIONAL_ID_NOT_FOUND,
        "has read its transactions",
    )


def _until_coordinator(talk: Conversation, broker_id: int, key_type: int, coordinator: int | None = None) -> None:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["warm-up"])
    talk.until(
        broker_id,
        request,
        4,
        lambda answer: not answer.coordinators[0].error_code and coordinator in (None, answer.coordinators[0].node_id),
        f"knows the coordinator of {key_type=}",
    )
