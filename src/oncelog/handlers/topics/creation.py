"""Topics that are created on demand: auto-creation, and the broker's own topics. Not an API.

The request waits for the one commit that creates all of its topics. Apache Kafka creates in the background, and clients
have to repeat it after an error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE, TopicId, TopicName
from oncelog.core.controller.outcomes import Decided, Refusal
from oncelog.core.controller.topics.changes import (
    Charge,
    CreatedTopic,
    MorePartitions,
    NewTopic,
    create_partitions,
    create_topics,
    free,
)
from oncelog.core.controller.topics.commit_split import first_part, partitions_per_commit, shape
from oncelog.core.controller.topics.internal_topics import min_isr, replication_factor
from oncelog.handlers.broker.metadata_changes import committed
from oncelog.handlers.broker.ports import ClusterView
from oncelog.handlers.broker.waits import NextSlice, Steps

if TYPE_CHECKING:
    from oncelog.core.configs.broker import BrokerConfig
    from oncelog.core.controller.image.cluster_image import ClusterImage


def new_topic_id(cluster: ClusterView) -> TopicId:
    """A random version 4 UUID; never a reserved id."""
    value = bytearray(cluster.random_bytes(16))
    value[6] = value[6] & 0x0F | 0x40
    value[8] = value[8] & 0x3F | 0x80
    return TopicId(bytes(value))


def create_together(
    topics: Sequence[NewTopic],
    cluster: ClusterView,
    beside: Collection[TopicName],
    charge: Charge = free,
    *,
    dry_run: bool,
) -> Steps[Sequence[CreatedTopic | Refusal]]:
    """Create topics in one commit, or a single too large one in parts. Returns the outcomes. ``beside``: topics that
    the same request created before.
    """
    if len(topics) == 1 and not dry_run:
        (topic,) = topics
        partitions, factor = shape(cluster.config, topic)
        per_commit = partitions_per_commit(topic.name, factor)
        if partitions > per_commit:
            return [(yield from _create_in_parts(topic, per_commit, cluster, beside, charge))]
    return (
        yield from committed(
            lambda: create_topics(cluster.image, cluster.config, topics, lambda: new_topic_id(cluster), beside, charge),
            dry_run=dry_run,
        )
    )


def _create_in_parts(
    topic: NewTopic, per_commit: int, cluster: ClusterView, beside: Collection[TopicName], charge: Charge
) -> Steps[CreatedTopic | Refusal]:
    topic_id = new_topic_id(cluster)

    def creation(part: NewTopic) -> Decided[CreatedTopic]:
        return create_topics(cluster.image, cluster.config, [part], lambda: topic_id, beside, charge)

    (whole,) = creation(topic).outcomes
    if isinstance(whole, Refusal):
        return whole
    outcomes: Sequence[object] = yield from committed(lambda: creation(first_part(topic, per_commit)))
    end = len(whole.assignment)
    manual = [tuple(brokers) for _, brokers in sorted(topic.assignments)]
    # Each part is decided on the brokers of that moment. A refusal leaves a smaller topic, and is its outcome.
    for existing in range(per_commit, end, per_commit):
        if isinstance(outcomes[0], Refusal):
            return outcomes[0]
        yield NextSlice()
        count = min(existing + per_commit, end)
        addition = MorePartitions(topic.name, count, manual[existing:count] if manual else None)
        outcomes = yield from committed(partial(_grow, addition, topic_id, cluster))
    return outcomes[0] if isinstance(outcomes[0], Refusal) else whole


def _grow(addition: MorePartitions, topic_id: TopicId, cluster: ClusterView) -> Decided[TopicName]:
    """Add partitions, unless another topic has the name by now."""
    if cluster.image.topic_of_id(topic_id) is None:
        return Decided(
            [],
            [
                Refusal(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    "The topic was deleted while its partitions were being created.",
                )
            ],
        )
    return create_partitions(cluster.image, [addition])


def auto_create(cluster: ClusterView, names: Sequence[str], charge: Charge = free) -> Steps[Mapping[str, Refusal]]:
    """Create topics with the broker's defaults; existing ones count as created. Returns the refusals."""
    outcomes = yield from committed(lambda: _decide(cluster, names, charge))
    return {
        name: outcome
        for name, outcome in zip(names, outcomes, strict=True)
        if isinstance(outcome, Refusal) and outcome.error_code != ErrorCode.TOPIC_ALREADY_EXISTS
    }


def ensure_internal_topic(cluster: ClusterView, topic: TopicName) -> Steps[ErrorCode]:
    """Create an internal topic at its first use, in one commit. Returns NONE if it exists now, else
    COORDINATOR_NOT_AVAILABLE.
    """
    if topic not in cluster.image.topics:
        yield from auto_create(cluster, [topic])
    return ErrorCode.NONE if topic in cluster.image.topics else ErrorCode.COORDINATOR_NOT_AVAILABLE


def _decide(cluster: ClusterView, names: Sequence[str], charge: Charge) -> Decided[CreatedTopic]:
    image, config = cluster.image, cluster.config
    topics = [topic_with_defaults(image, config, name) for name in names]
    return create_topics(image, config, topics, lambda: new_topic_id(cluster), charge=charge)


def topic_with_defaults(image: ClusterImage, config: BrokerConfig, name: str) -> NewTopic:
    if name == CONSUMER_OFFSETS:
        return NewTopic(
            name,
            config.get("offsets.topic.num.partitions"),
            replication_factor(image, config, CONSUMER_OFFSETS),
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(config.get("offsets.topic.segment.bytes"))),
            ),
        )
    if name == TRANSACTION_STATE:
        return NewTopic(
            name,
            config.get("transaction.state.log.num.partitions"),
            replication_factor(image, config, TRANSACTION_STATE),
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "uncompressed"),
                ("min.insync.replicas", str(min_isr(image, config, TRANSACTION_STATE))),
                ("segment.bytes", str(config.get("transaction.state.log.segment.bytes"))),
                ("unclean.leader.election.enable", "false"),
            ),
        )
    if name == SHARE_GROUP_STATE:
        return NewTopic(
            name,
            config.get("share.coordinator.state.topic.num.partitions"),
            replication_factor(image, config, SHARE_GROUP_STATE),
            configs=(
                ("cleanup.policy", "delete"),
                ("compression.type", "producer"),
                ("min.insync.replicas", str(min_isr(image, config, SHARE_GROUP_STATE))),
                ("retention.ms", "-1"),
                ("segment.bytes", str(config.get("share.coordinator.state.topic.segment.bytes"))),
            ),
        )
    return NewTopic(name)
