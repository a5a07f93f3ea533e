"""Moves of replicas to other brokers (KIP-455).

AlterPartitionReassignments, versions 0 to 1 (KIP-860), begins or cancels moves; the controller completes one when the
added replicas are in sync.

ListPartitionReassignments, version 0, leaves out partitions that do not exist or do not move.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName
from oncelog.core.configs.topic import allows_unclean_elections
from oncelog.core.controller.commits import partition_batches
from oncelog.core.controller.image.cluster_image import PartitionImage
from oncelog.core.controller.outcomes import Decided, Refusal
from oncelog.core.controller.replicas.reassignments import Reassignment, alter_reassignments, reassigning
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.metadata_changes import (
    CLUSTER_DENIED,
    TIMEOUT_NOT_POSITIVE,
    committed_in_batches,
    with_outcome,
)
from oncelog.handlers.broker.waits import Steps
from oncelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from oncelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

ALTER_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.REQUEST_TIMED_OUT: "the time-out is not above 0, or too many conflicting metadata changes",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to alter the cluster",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "no replicas, one twice, an unknown broker, or no live replica to return to",
    ErrorCode.INVALID_REPLICATION_FACTOR: "the number of replicas would change, which is not allowed here",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "there is nothing to take back",
}

_NONE: Final = Refusal(ErrorCode.NONE)


def alter(request: AlterPartitionReassignmentsRequest, context: Context) -> Steps[AlterPartitionReassignmentsResponse]:
    if not context.allows_cluster(Operation.ALTER):
        return _refuse(request, CLUSTER_DENIED)
    if not request.topics:
        return AlterPartitionReassignmentsResponse()  # its message is empty, not null: so is Apache Kafka's
    if request.timeout_ms <= 0:
        return _refuse(request, TIMEOUT_NOT_POSITIVE)
    cluster = context.cluster
    reassignments = [
        Reassignment(TopicName(topic.name), partition.partition_index, partition.replicas)
        for topic in request.topics
        for partition in topic.partitions
    ]

    def decide(batch: Sequence[Reassignment]) -> Decided[None]:
        return alter_reassignments(
            cluster.image,
            batch,
            lambda topic: allows_unclean_elections(cluster.config, topic.configs),
            may_change_factor=request.allow_replication_factor_change,
        )

    batches = partition_batches(cluster.image, reassignments, lambda reassignment: reassignment.topic, moves=True)
    outcomes = yield from committed_in_batches(batches, decide)
    return _respond(request, _NONE, iter(outcomes))


def _refuse(request: AlterPartitionReassignmentsRequest, refusal: Refusal) -> AlterPartitionReassignmentsResponse:
    return _respond(request, refusal, repeat(refusal))


def _respond(
    request: AlterPartitionReassignmentsRequest, refusal: Refusal, outcomes: Iterator[object]
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=refusal.error_code,
        error_message=refusal.message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_answer(partition.partition_index, next(outcomes)) for partition in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _answer(index: int, outcome: object) -> ReassignablePartitionResponse:
    return with_outcome(ReassignablePartitionResponse(partition_index=index), outcome)


LIST_REASSIGNMENTS_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to describe the cluster"
}


def list_reassignments(
    request: ListPartitionReassignmentsRequest, context: Context
) -> ListPartitionReassignmentsResponse:
    if not context.allows_cluster(Operation.DESCRIBE):
        return with_outcome(ListPartitionReassignmentsResponse(), CLUSTER_DENIED)
    topics = [
        OngoingTopicReassignment(
            name=name, partitions=[_ongoing(index, partition) for index, partition in moving.items()]
        )
        for name, moving in _moving(request, context)
        if moving
    ]
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)


def _moving(
    request: ListPartitionReassignmentsRequest, context: Context
) -> Iterator[tuple[str, dict[int, PartitionImage]]]:
    topics = context.cluster.image.topics
    if request.topics is None:
        for name, topic in sorted(topics.items()):
            yield name, dict(reassigning(topic))
        return
    for requested in request.topics:
        image = topics.get(TopicName(requested.name))
        moving = {} if image is None else dict(reassigning(image))
        yield requested.name, {index: moving[index] for index in requested.partition_indexes if index in moving}


def _ongoing(index: int, partition: PartitionImage) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding),
        removing_replicas=list(partition.removing),
    )
