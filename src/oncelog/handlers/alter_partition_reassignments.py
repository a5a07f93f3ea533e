"""AlterPartitionReassignments, versions 0 to 1 (KIP-455, KIP-860): what tools ask for is checked, nothing has to move.

On one broker the only assignment that passes is the one that is there, and there is none to take back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName
from oncelog.core.controller.outcomes import Refusal, Refused
from oncelog.core.controller.reassignments import check_reassignment
from oncelog.handlers.api import Operation
from oncelog.handlers.support.context import Context
from oncelog.handlers.support.metadata_changes import CLUSTER_DENIED, HURRIED, may_cluster
from oncelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.REQUEST_TIMED_OUT: "the time-out is not above 0",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to alter the cluster",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "no replicas, one twice, or another broker",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "there is nothing to take back",
}

_NONE: Final = Refusal(ErrorCode.NONE)


def handle(request: AlterPartitionReassignmentsRequest, context: Context) -> AlterPartitionReassignmentsResponse:
    """Each partition by itself."""
    refusal = _NONE
    if not may_cluster(context, Operation.ALTER):
        refusal = CLUSTER_DENIED
    elif not request.topics:
        return AlterPartitionReassignmentsResponse()  # its message is empty, not null: so is Apache Kafka's
    elif request.timeout_ms <= 0:
        refusal = HURRIED
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=refusal.error_code,
        error_message=refusal.message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_answer(each, refusal, TopicName(topic.name), context) for each in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _answer(
    asked: ReassignablePartition, refusal: Refusal, topic: TopicName, context: Context
) -> ReassignablePartitionResponse:
    if refusal is _NONE:
        try:
            check_reassignment(context.cluster.image, topic, asked.partition_index, asked.replicas)
        except Refused as refused:
            refusal = refused.refusal
    return ReassignablePartitionResponse(
        partition_index=asked.partition_index, error_code=refusal.error_code, error_message=refusal.message
    )
