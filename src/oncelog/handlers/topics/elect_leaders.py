"""ElectLeaders, versions 0 to 2 (KIP-183, KIP-460): preferred or unclean elections.

A partition's preferred leader is its first replica. Any broker decides; the commit fails if the partition's state has
changed since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName
from oncelog.core.controller.commits import partition_batches
from oncelog.core.controller.outcomes import Refusal
from oncelog.core.controller.replicas.elections import ElectionType, elect
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.metadata_changes import (
    CLUSTER_DENIED,
    TIMEOUT_NOT_POSITIVE,
    committed_in_batches,
    with_outcome,
)
from oncelog.handlers.broker.waits import NextSlice, Steps
from oncelog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.ELECTION_NOT_NEEDED: "the partition has its preferred leader (preferred), or any (unclean)",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the preferred leader is not alive or not in sync",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica is alive",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.INVALID_REQUEST: "an unknown type of election",
    ErrorCode.REQUEST_TIMED_OUT: "the time-out is not above 0, or too many conflicting metadata changes",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to alter the cluster",
}

_MANY: Final = 1000

Partitions = Sequence[tuple[str, Sequence[int]]]


def handle(request: ElectLeadersRequest, context: Context) -> Steps[ElectLeadersResponse]:
    if not context.allows_cluster(Operation.ALTER):
        return _refuse(request, CLUSTER_DENIED)
    if request.election_type not in tuple(ElectionType):
        message = f"Unknown election type {request.election_type}"
        return _refuse(request, Refusal(ErrorCode.INVALID_REQUEST, message))
    if request.timeout_ms <= 0:
        return _refuse(request, TIMEOUT_NOT_POSITIVE)
    return (yield from _elect(request, context))


def _elect(request: ElectLeadersRequest, context: Context) -> Steps[ElectLeadersResponse]:
    everything = request.topic_partitions is None
    image = context.cluster.image
    requested: Partitions = (
        [(name, range(len(topic.partitions))) for name, topic in sorted(image.topics.items())]
        if request.topic_partitions is None
        else [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    )
    flat = [(TopicName(topic), partition) for topic, partitions in requested for partition in partitions]
    election = ElectionType(request.election_type)
    outcomes = yield from committed_in_batches(
        partition_batches(image, flat, lambda partition: partition[0], moves=False),
        lambda batch: elect(context.cluster.image, election, batch),
    )
    if len(flat) > _MANY:
        yield NextSlice()
    results, answers = [], iter(outcomes)
    for topic, partitions in requested:
        result = ReplicaElectionResult(topic=topic)
        for partition in partitions:
            outcome = next(answers)
            answer = with_outcome(PartitionResult(partition_id=partition), outcome)
            # Elections of all partitions list only those that changed or failed.
            if not (everything and answer.error_code == ErrorCode.ELECTION_NOT_NEEDED):
                result.partition_result.append(answer)
        results.append(result)
    return ElectLeadersResponse(replica_election_results=results)


def _refuse(request: ElectLeadersRequest, refusal: Refusal) -> ElectLeadersResponse:
    results = [
        ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                with_outcome(PartitionResult(partition_id=partition), refusal) for partition in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    return ElectLeadersResponse(error_code=refusal.error_code, replica_election_results=results)
