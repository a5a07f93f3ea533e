"""CreatePartitions, versions 0 to 3 (KIP-195): add partitions to existing topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName
from oncelog.base.tree import commit_size
from oncelog.core.controller.commits import COMMIT_BYTES
from oncelog.core.controller.outcomes import Decided, Refusal
from oncelog.core.controller.topics.changes import Charge, MorePartitions, create_partitions
from oncelog.core.controller.topics.commit_split import partitions_per_commit
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.limits import PartitionCharges
from oncelog.handlers.broker.metadata_changes import TIMEOUT_NOT_POSITIVE, committed, with_outcome
from oncelog.handlers.broker.waits import NextSlice, Steps
from oncelog.wire.messages import create_partitions as wire

if TYPE_CHECKING:
    from oncelog.core.controller.image.cluster_image import ClusterImage

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic",
    ErrorCode.INVALID_PARTITIONS: "the topic has that many partitions already, or more",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "the assignments are not as many as partitions are added, or not possible",
    ErrorCode.INVALID_REPLICATION_FACTOR: "the topic has more replicas than there ever were brokers",
    ErrorCode.INVALID_REQUEST: "a topic twice",
    ErrorCode.POLICY_VIOLATION: "more than 10,000 partitions in one request",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "the client's quota of partitions created and deleted is used up (version 3)",
    ErrorCode.REQUEST_TIMED_OUT: "the time-out is not above 0, or too many conflicting metadata changes",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to alter the topic",
}

_THROTTLED_SINCE: Final = 3


def handle(request: wire.CreatePartitionsRequest, context: Context) -> Steps[wire.CreatePartitionsResponse]:
    if request.timeout_ms <= 0:
        return wire.CreatePartitionsResponse(
            results=[_result(topic.name, TIMEOUT_NOT_POSITIVE) for topic in request.topics]
        )
    names = Counter(topic.name for topic in request.topics)
    duplicate = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    results = [_result(name, duplicate) for name, count in names.items() if count > 1]
    additions = []
    for topic in request.topics:
        if names[topic.name] > 1:
            continue
        if context.allows_topic(Operation.ALTER, topic.name):
            additions.append(_addition_of(topic))
        else:
            results.append(_result(topic.name, Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
    charges = PartitionCharges(context.cluster.quotas, context, strict=context.version >= _THROTTLED_SINCE)
    outcomes = yield from _outcomes(additions, request, context, charges.charge)
    results.extend(_result(topic.name, outcome) for topic, outcome in zip(additions, outcomes, strict=True))
    return wire.CreatePartitionsResponse(throttle_time_ms=charges.throttle_ms(), results=results)


def _outcomes(
    additions: Sequence[MorePartitions], request: wire.CreatePartitionsRequest, context: Context, charge: Charge
) -> Steps[Sequence[TopicName | Refusal]]:
    image = context.cluster.image
    # Decided as a whole first, for the outcome of each topic.
    whole = create_partitions(image, additions, charge)
    if request.validate_only or commit_size(whole.operations) <= COMMIT_BYTES:
        decide = partial(_decide, additions, context, charge)
        return (yield from committed(decide, dry_run=request.validate_only))
    outcomes: list[TopicName | Refusal] = []
    for addition, decided in zip(additions, whole.outcomes, strict=True):
        outcome = decided
        for part in _parts(image, addition):
            if isinstance(outcome, Refusal):
                break  # refused before the first part or at one; parts before that stay
            (outcome,) = yield from committed(partial(_decide, [part], context, charge))
            yield NextSlice()
        outcomes.append(outcome)
    return outcomes


def _decide(additions: Sequence[MorePartitions], context: Context, charge: Charge) -> Decided[TopicName]:
    return create_partitions(context.cluster.image, additions, charge)


def _parts(image: ClusterImage, addition: MorePartitions) -> Iterator[MorePartitions]:
    topic = image.topics.get(TopicName(addition.name))
    if topic is None:
        return
    existing, assignments = len(topic.partitions), addition.assignments
    per_commit = partitions_per_commit(topic.name, len(topic.partitions[0].replicas))
    for begin in range(existing, addition.count, per_commit):
        end = min(begin + per_commit, addition.count)
        yield MorePartitions(
            addition.name, end, None if assignments is None else assignments[begin - existing : end - existing]
        )


def _addition_of(topic: wire.CreatePartitionsTopic) -> MorePartitions:
    assignments = topic.assignments
    brokers = None if assignments is None else [assignment.broker_ids for assignment in assignments]
    return MorePartitions(topic.name, topic.count, brokers)


def _result(name: str, outcome: object) -> wire.CreatePartitionsTopicResult:
    return with_outcome(wire.CreatePartitionsTopicResult(name=name), outcome)
