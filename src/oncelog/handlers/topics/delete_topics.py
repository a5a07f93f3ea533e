"""DeleteTopics, versions 1 to 6 (KIP-4, KIP-516), by name or by id; internal topics, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID, TopicId, TopicName
from oncelog.core.controller.image.cluster_image import ClusterImage, TopicImage
from oncelog.core.controller.outcomes import Decided, Refusal, Refused
from oncelog.core.controller.topics.changes import delete_topics
from oncelog.core.controller.topics.commit_split import batches, deletion_bytes, last_partitions_deleted
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.limits import PartitionCharges
from oncelog.handlers.broker.metadata_changes import (
    TIMEOUT_NOT_POSITIVE,
    TOPICS_PER_COMMIT,
    committed,
    committed_in_batches,
    with_outcome,
)
from oncelog.handlers.broker.waits import NextSlice, Steps
from oncelog.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic",
    ErrorCode.UNKNOWN_TOPIC_ID: "no topic has this id",
    ErrorCode.INVALID_REQUEST: "a topic twice, neither name nor id, or both; up to version 2: deletion is disabled",
    ErrorCode.TOPIC_DELETION_DISABLED: "delete.topic.enable is false (version 3)",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "the client's quota of partitions created and deleted is used up (version 5)",
    ErrorCode.REQUEST_TIMED_OUT: "the time-out is not above 0, or too many conflicting metadata changes",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to delete the topic",
}

_STATES_SINCE: Final = 6
_DISABLED_SINCE: Final = 3
_THROTTLED_SINCE: Final = 5

_UNKNOWN_NAME: Final = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
_UNKNOWN_ID: Final = Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
_NEITHER: Final = Refusal(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
_BOTH: Final = Refusal(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
_NAME_TWICE: Final = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
_ID_TWICE: Final = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
_MAPPED_TWICE: Final = Refusal(
    ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied."
)
_DENIED: Final = Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")

Target = tuple[str | None, TopicId]
"""The name and id by which a request gives a topic."""


def handle(request: DeleteTopicsRequest, context: Context) -> Steps[DeleteTopicsResponse]:
    """In as few commits as the tree takes."""
    targets: list[Target] = (
        [(topic.name, TopicId(topic.topic_id)) for topic in request.topics]
        if context.version >= _STATES_SINCE
        else [(name, NO_TOPIC_ID) for name in request.topic_names]
    )
    if not context.cluster.config.get("delete.topic.enable"):
        return _disabled(targets, context)
    if request.timeout_ms <= 0:
        return DeleteTopicsResponse(
            responses=[_result(name, topic_id, TIMEOUT_NOT_POSITIVE) for name, topic_id in targets]
        )
    return (yield from _delete(targets, context))


def _disabled(targets: Sequence[Target], context: Context) -> DeleteTopicsResponse:
    refusal = (
        Refusal(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
        if context.version >= _DISABLED_SINCE
        else Refusal(ErrorCode.INVALID_REQUEST, "Topic deletion is disabled.")
    )
    return DeleteTopicsResponse(responses=[_result(name, topic_id, refusal) for name, topic_id in targets])


def _delete(targets: Sequence[Target], context: Context) -> Steps[DeleteTopicsResponse]:
    results, targets_left = _well_formed(targets)
    charges = PartitionCharges(context.cluster.quotas, context, strict=context.version >= _THROTTLED_SINCE)

    topics = [_charged(charges, outcome) for outcome in _resolve(context, targets_left)]
    for topic in topics:
        if isinstance(topic, TopicImage):
            yield from _without_last_partitions(topic, context)

    # Topics may change between the charge and the commit: resolve them again, but keep earlier refusals.
    def decide(batch: Sequence[tuple[Target, TopicImage | Refusal]]) -> Decided[TopicImage]:
        resolved = _resolve(context, [target for target, _ in batch])
        outcomes = [
            before if isinstance(before, Refusal) else after for (_, before), after in zip(batch, resolved, strict=True)
        ]
        topics = [topic for topic in outcomes if isinstance(topic, TopicImage)]
        return Decided(delete_topics(context.cluster.image, topics), outcomes)

    pairs = list(zip(targets_left, topics, strict=True))
    outcomes = yield from committed_in_batches(batches(pairs, _size, TOPICS_PER_COMMIT), decide)
    for (name, topic_id), outcome in zip(targets_left, outcomes, strict=True):
        if isinstance(outcome, TopicImage):
            results.append(_result(outcome.name, outcome.topic_id, outcome))
        else:
            shown = _visible_name(topic_id, context) if name is None and outcome is _DENIED else name
            results.append(_result(shown, topic_id, outcome))
    return DeleteTopicsResponse(throttle_time_ms=charges.throttle_ms(), responses=results)


def _charged(charges: PartitionCharges, outcome: TopicImage | Refusal) -> TopicImage | Refusal:
    if isinstance(outcome, TopicImage):
        try:
            charges.charge(outcome.topic_id, len(outcome.partitions))
        except Refused as refused:
            return refused.refusal
    return outcome


def _visible_name(topic_id: TopicId, context: Context) -> TopicName | None:
    """The name of a topic that the requester may describe, though not delete."""
    name = context.cluster.image.topic_names.get(topic_id)
    return name if name is not None and context.allows_topic_silently(Operation.DESCRIBE, name) else None


def _size(pair: tuple[Target, TopicImage | Refusal]) -> int:
    return deletion_bytes(pair[1]) if isinstance(pair[1], TopicImage) else 0


def _without_last_partitions(topic: TopicImage, context: Context) -> Steps[None]:
    """Delete partitions until the deletion of the topic fits one commit."""
    cluster = context.cluster

    def decide() -> Decided[TopicImage]:
        now = cluster.image.topic_of_id(topic.topic_id)
        return Decided([], []) if now is None else Decided(last_partitions_deleted(cluster.image, now), [now])

    while decide().operations:
        (outcome,) = yield from committed(decide)
        if isinstance(outcome, Refusal):
            return  # the deletion will be refused alike
        yield NextSlice()


def _well_formed(targets: Sequence[Target]) -> tuple[list[DeletableTopicResult], list[Target]]:
    names = Counter(name for name, topic_id in targets if name is not None and topic_id == NO_TOPIC_ID)
    ids = Counter(topic_id for name, topic_id in targets if name is None)
    refused, valid = [], []
    for name, topic_id in targets:
        if name is not None and topic_id != NO_TOPIC_ID:
            refused.append(_result(name, topic_id, _BOTH))
        elif name is None and topic_id == NO_TOPIC_ID:
            refused.append(_result(name, topic_id, _NEITHER))
        elif (names[name] if name is not None else ids[topic_id]) == 1:
            valid.append((name, topic_id))
    refused.extend(_result(name, NO_TOPIC_ID, _NAME_TWICE) for name, count in names.items() if count > 1)
    refused.extend(
        _result(None, topic_id, _ID_TWICE) for topic_id, count in ids.items() if count > 1 and topic_id != NO_TOPIC_ID
    )
    return refused, valid


def _resolve(context: Context, targets: Sequence[Target]) -> list[TopicImage | Refusal]:
    image = context.cluster.image
    may_all = context.allows_cluster_silently(Operation.DELETE)
    by_id = {image.topic_names.get(topic_id) for name, topic_id in targets if name is None}
    outcomes: list[TopicImage | Refusal] = []
    for name, topic_id in targets:
        outcome = _find(image, name, topic_id)
        if name is not None and not may_all and not context.allows_topic(Operation.DESCRIBE, name):
            outcome = _DENIED
        elif isinstance(outcome, TopicImage):
            if not may_all and not context.allows_topic(Operation.DELETE, outcome.name):
                outcome = _DENIED
            elif name is not None and name in by_id:
                outcome = _MAPPED_TWICE
        outcomes.append(outcome)
    mapped_twice = {name for (name, _), outcome in zip(targets, outcomes, strict=True) if outcome is _MAPPED_TWICE}
    return [
        _MAPPED_TWICE if isinstance(outcome, TopicImage) and outcome.name in mapped_twice else outcome
        for outcome in outcomes
    ]


def _find(image: ClusterImage, name: str | None, topic_id: TopicId) -> TopicImage | Refusal:
    if name is not None:
        return image.topics.get(TopicName(name), _UNKNOWN_NAME)
    topic = image.topic_of_id(topic_id)
    return _UNKNOWN_ID if topic is None else topic


def _result(name: str | None, topic_id: TopicId, outcome: object) -> DeletableTopicResult:
    return with_outcome(DeletableTopicResult(name=name, topic_id=topic_id), outcome)
