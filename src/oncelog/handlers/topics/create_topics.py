"""CreateTopics, versions 2 to 7 (KIP-4, KIP-464, KIP-516, KIP-525): topics with partitions, replicas and configs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName
from oncelog.core.configs.broker import Source
from oncelog.core.configs.keys import TOPIC_KEYS
from oncelog.core.configs.kinds import canonical
from oncelog.core.configs.topic import topic_synonyms, topic_value
from oncelog.core.controller.outcomes import Refusal
from oncelog.core.controller.topic_names import METADATA_TOPIC
from oncelog.core.controller.topics.changes import TOO_MANY_PARTITIONS, CreatedTopic, NewTopic, exceeds_max_partitions
from oncelog.core.controller.topics.commit_split import batches, creation_bytes
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.limits import PartitionCharges
from oncelog.handlers.broker.metadata_changes import TIMEOUT_NOT_POSITIVE, TOPICS_PER_COMMIT, with_outcome
from oncelog.handlers.broker.waits import NextSlice, Steps
from oncelog.handlers.topics.creation import create_together
from oncelog.wire.messages import create_topics as wire

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.TOPIC_ALREADY_EXISTS: "the topic exists",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a topic cannot have this name, or it could be taken for another's",
    ErrorCode.INVALID_PARTITIONS: "the number of partitions is 0 or below −1",
    ErrorCode.INVALID_REPLICATION_FACTOR: "the number of replicas is 0, below −1 or above the number of brokers",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "the manual assignment has a gap, an unknown broker or a broker twice",
    ErrorCode.INVALID_CONFIG: "a config is unknown, null, or has a wrong value",
    ErrorCode.INVALID_REQUEST: "a name twice, __cluster_metadata, or an assignment beside numbers",
    ErrorCode.POLICY_VIOLATION: "more than 10,000 partitions in one request",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "the client's quota of partitions created and deleted is used up (version 6)",
    ErrorCode.REQUEST_TIMED_OUT: "the time-out is not above 0, or too many conflicting metadata changes",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to create the topic, or to see its configs (config error)",
}


_CONFIGS_SINCE: Final = 5
_THROTTLED_SINCE: Final = 6


def handle(request: wire.CreateTopicsRequest, context: Context) -> Steps[wire.CreateTopicsResponse]:
    """In as few commits as the tree takes."""
    if request.timeout_ms <= 0:
        return wire.CreateTopicsResponse(
            topics=[_refused(topic.name, TIMEOUT_NOT_POSITIVE) for topic in request.topics]
        )
    names = Counter(topic.name for topic in request.topics)
    may_create = context.allows_cluster_silently(Operation.CREATE)
    accepted, results = [], []
    for topic in request.topics:
        if names[topic.name] == 1 and topic.name != METADATA_TOPIC:
            if may_create or context.allows_topic(Operation.CREATE, topic.name):
                accepted.append(topic)
            else:
                results.append(_refused(topic.name, _DENIED))
    charges = PartitionCharges(context.cluster.quotas, context, strict=context.version >= _THROTTLED_SINCE)
    outcomes = yield from _outcomes(accepted, request, context, charges)
    configs: dict[frozenset[tuple[str, str]], list[wire.CreatableTopicConfigs]] = {}
    created = [
        _refused(topic.name, outcome) if isinstance(outcome, Refusal) else _created(outcome, context, configs)
        for topic, outcome in zip(accepted, outcomes, strict=True)
    ]
    duplicates = [_refused(name, _DUPLICATE) for name, count in names.items() if count > 1]
    reserved = [_refused(METADATA_TOPIC, _RESERVED)] if names[METADATA_TOPIC] == 1 else []
    topics = [*created, *duplicates, *reserved, *results]
    return wire.CreateTopicsResponse(throttle_time_ms=charges.throttle_ms(), topics=topics)


def _outcomes(
    requested: Sequence[wire.CreatableTopic],
    request: wire.CreateTopicsRequest,
    context: Context,
    charges: PartitionCharges,
) -> Steps[Sequence[CreatedTopic | Refusal]]:
    cluster = context.cluster
    if len(requested) > TOPICS_PER_COMMIT:
        yield NextSlice()
    topics = [_new_topic(topic) for topic in requested]
    if len(requested) > TOPICS_PER_COMMIT:
        yield NextSlice()
    if exceeds_max_partitions(cluster.config, topics):
        return [TOO_MANY_PARTITIONS for _ in topics]
    outcomes: list[CreatedTopic | Refusal] = []
    created: set[TopicName] = set()
    # Thousands are created in batches: a decision and the update of the image hold up other requests.
    for batch in batches(topics, partial(creation_bytes, cluster.config), TOPICS_PER_COMMIT):
        if outcomes:
            yield NextSlice()
        decided = yield from create_together(batch, cluster, created, charges.charge, dry_run=request.validate_only)
        outcomes += decided
        created.update(outcome.name for outcome in decided if isinstance(outcome, CreatedTopic))
    if len(topics) > TOPICS_PER_COMMIT:
        yield NextSlice()
    return outcomes


_DENIED: Final = Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
_DUPLICATE: Final = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
_RESERVED: Final = Refusal(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited.")


def _new_topic(topic: wire.CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        [(config.name, config.value) for config in topic.configs],
    )


def _refused(name: str, refusal: Refusal) -> wire.CreatableTopicResult:
    return with_outcome(wire.CreatableTopicResult(name=name), refusal)


def _created(
    topic: CreatedTopic, context: Context, shown: dict[frozenset[tuple[str, str]], list[wire.CreatableTopicConfigs]]
) -> wire.CreatableTopicResult:
    """The answer for one topic. ``shown`` caches the encoded configs by the topic's own configs."""
    result = wire.CreatableTopicResult(name=topic.name, topic_id=topic.topic_id, error_message=None)
    if context.version < _CONFIGS_SINCE:
        return result
    if not context.allows_topic_silently(Operation.DESCRIBE_CONFIGS, topic.name):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return result
    result.num_partitions = len(topic.assignment)
    result.replication_factor = topic.replication_factor
    # Topics that set the same share their answer's configs: thousands are created at once.
    own = frozenset(topic.configs.items())
    if own not in shown:
        shown[own] = _configs(topic, context)
    result.configs = shown[own]
    return result


def _configs(topic: CreatedTopic, context: Context) -> list[wire.CreatableTopicConfigs]:
    """The configs of the topic's logs with their sources (KIP-525)."""
    config = context.cluster.config
    configs = []
    for key in TOPIC_KEYS.values():
        if key.internal and key.name not in topic.configs:
            continue
        synonyms = topic_synonyms(config, topic.configs, key)
        source = synonyms[0].source if synonyms else Source.DEFAULT
        value = canonical(topic_value(config, topic.configs, key))
        configs.append(wire.CreatableTopicConfigs(name=key.name, value=value, config_source=source.value))
    return configs
