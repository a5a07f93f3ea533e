"""CreatePartitions, versions 0 to 3 (KIP-195): more partitions for topics that exist."""

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
    ErrorCode.REQUEST_TIMED_OUT: "the time-out is not above 0, or other changes kept coming in between",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to alter the topic",
}

_THROTTLED_SINCE: Final = 3


def handle(request: wire.CreatePartitionsRequest, context: Context) -> Steps[wire.CreatePartitionsResponse]:
    """Add what can be added, in as few commits as the tree takes; or only say what would be (``validate_only``)."""
    if request.timeout_ms <= 0:
        return wire.CreatePartitionsResponse(
            results=[_result(topic.name, TIMEOUT_NOT_POSITIVE) for topic in request.topics]
        )
    names = Counter(topic.name for topic in request.topics)
    twice = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    results = [_result(name, twice) for name, count in names.items() if count > 1]
    wanted = []
    for topic in request.topics:
        if names[topic.name] > 1:
            continue
        if context.allows_topic(Operation.ALTER, topic.name):
            wanted.append(_more(topic))
        else:
            results.append(_result(topic.name, Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
    charges = PartitionCharges(context.cluster.quotas, context, strict=context.version >= _THROTTLED_SINCE)
    outcomes = yield from _outcomes(wanted, request, context, charges.charge)
    results.extend(_result(topic.name, outcome) for topic, outcome in zip(wanted, outcomes, strict=True))
    return wire.CreatePartitionsResponse(throttle_time_ms=charges.throttle_ms(), results=results)


def _outcomes(
    wanted: Sequence[MorePartitions], request: wire.CreatePartitionsRequest, context: Context, charge: Charge
) -> Steps[Sequence[TopicName | Refusal]]:
    """Add what can be added, in as few commits as the tree takes; the outcome of each topic."""
    image = context.cluster.image
    whole = create_partitions(image, wanted, charge)
    if request.validate_only or commit_size(whole.operations) <= COMMIT_BYTES:
        decide = partial(_decide, wanted, context, charge)
        return (yield from committed(decide, dry_run=request.validate_only))
    outcomes: list[TopicName | Refusal] = []
    for more, decided in zip(wanted, whole.outcomes, strict=True):
        outcome = decided
        for part in _parts(image, more):
            if isinstance(outcome, Refusal):
                break  # before the first, or at one: what was added before stays
            (outcome,) = yield from committed(partial(_decide, [part], context, charge))
            yield NextSlice()
        outcomes.append(outcome)
    return outcomes


def _decide(wanted: Sequence[MorePartitions], context: Context, charge: Charge) -> Decided[TopicName]:
    return create_partitions(context.cluster.image, wanted, charge)


def _parts(image: ClusterImage, more: MorePartitions) -> Iterator[MorePartitions]:
    """The same in steps, each of which fits one commit."""
    topic = image.topics.get(TopicName(more.name))
    if topic is None:
        return
    have, given = len(topic.partitions), more.assignments
    at_once = partitions_per_commit(topic.name, len(topic.partitions[0].replicas))
    for begin in range(have, more.count, at_once):
        end = min(begin + at_once, more.count)
        yield MorePartitions(more.name, end, None if given is None else given[begin - have : end - have])


def _more(topic: wire.CreatePartitionsTopic) -> MorePartitions:
    assignments = topic.assignments
    brokers = None if assignments is None else [assignment.broker_ids for assignment in assignments]
    return MorePartitions(topic.name, topic.count, brokers)


def _result(name: str, outcome: object) -> wire.CreatePartitionsTopicResult:
    return with_outcome(wire.CreatePartitionsTopicResult(name=name), outcome)
