"""ListPartitionReassignments, version 0 (KIP-455): the partitions whose replicas are on the move.

What is asked for and does not exist, or does not move, is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName
from oncelog.core.controller.image.cluster_image import PartitionImage
from oncelog.core.controller.replicas.reassignments import reassigning
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.metadata_changes import CLUSTER_DENIED
from oncelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to describe the cluster",
}


def handle(request: ListPartitionReassignmentsRequest, context: Context) -> ListPartitionReassignmentsResponse:
    """The reassignments asked for, or all."""
    if not context.allows_cluster(Operation.DESCRIBE):
        return ListPartitionReassignmentsResponse(
            error_code=CLUSTER_DENIED.error_code, error_message=CLUSTER_DENIED.message
        )
    topics = [
        OngoingTopicReassignment(name=name, partitions=[_ongoing(index, each) for index, each in moving.items()])
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
    for asked in request.topics:
        found = topics.get(TopicName(asked.name))
        moving = {} if found is None else dict(reassigning(found))
        yield asked.name, {index: moving[index] for index in asked.partition_indexes if index in moving}


def _ongoing(index: int, partition: PartitionImage) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding),
        removing_replicas=list(partition.removing),
    )
