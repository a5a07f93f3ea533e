"""Topics that come into being because somebody asks for them: auto-creation, and the broker's own topics.

Apache Kafka answers the first question with an error while it creates in the background; here the asking request waits
for the one commit that creates all of its topics, so that clients need not ask again. Not an API.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CONSUMER_OFFSETS, TRANSACTION_STATE, TopicId, TopicName
from oncelog.core.controller.internal_topics import replication_factor, transaction_log_min_isr
from oncelog.core.controller.outcomes import Decided, Refusal
from oncelog.core.controller.topics import Charge, CreatedTopic, NewTopic, create_topics, free
from oncelog.handlers.support.metadata_changes import committed
from oncelog.handlers.support.ports import ClusterView
from oncelog.handlers.support.waits import Steps

if TYPE_CHECKING:
    from oncelog.core.configs.broker import BrokerConfig
    from oncelog.core.controller.image import ClusterImage


def new_topic_id(cluster: ClusterView) -> TopicId:
    """A random topic id, as a version 4 UUID; never one that means something else to clients."""
    value = bytearray(cluster.random_bytes(16))
    value[6] = value[6] & 0x0F | 0x40
    value[8] = value[8] & 0x3F | 0x80
    return TopicId(bytes(value))


def auto_create(cluster: ClusterView, names: Sequence[str], charge: Charge = free) -> Steps[Mapping[str, Refusal]]:
    """Create topics with the broker's defaults; those that exist count as created. Returns what was refused."""
    outcomes = yield from committed(lambda: _decide(cluster, names, charge))
    return {
        name: outcome
        for name, outcome in zip(names, outcomes, strict=True)
        if isinstance(outcome, Refusal) and outcome.error_code != ErrorCode.TOPIC_ALREADY_EXISTS
    }


def ensure_internal_topic(cluster: ClusterView, topic: TopicName) -> Steps[ErrorCode]:
    """Create one of the broker's own topics at its first use, all partitions in one commit.

    Returns NONE when it exists now, else COORDINATOR_NOT_AVAILABLE.
    """
    if topic not in cluster.image.topics:
        yield from auto_create(cluster, [topic])
    return ErrorCode.NONE if topic in cluster.image.topics else ErrorCode.COORDINATOR_NOT_AVAILABLE


def _decide(cluster: ClusterView, names: Sequence[str], charge: Charge) -> Decided[CreatedTopic]:
    image, config = cluster.image, cluster.config
    topics = [topic_with_defaults(image, config, name) for name in names]
    return create_topics(image, config, topics, lambda: new_topic_id(cluster), charge=charge)


def topic_with_defaults(image: ClusterImage, config: BrokerConfig, name: str) -> NewTopic:
    """The partitions, replicas and configs of an automatically created topic of this name."""
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
                ("min.insync.replicas", str(transaction_log_min_isr(image, config))),
                ("segment.bytes", str(config.get("transaction.state.log.segment.bytes"))),
                ("unclean.leader.election.enable", "false"),
            ),
        )
    return NewTopic(name)
