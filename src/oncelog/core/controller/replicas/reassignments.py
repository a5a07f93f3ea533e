"""Reassignments of replicas (KIP-455, KIP-860): operators begin and cancel them here; the controller completes them.

During a reassignment a partition's replicas are the target, followed by those to be removed; ``adding`` and
``removing`` mark them. ``leadership.finished_reassignment`` completes it once all added ones are in sync. Messages are
those of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, TopicName
from oncelog.core.controller.commits import operations_of
from oncelog.core.controller.fencing import topics_check
from oncelog.core.controller.image.cluster_image import ClusterImage, PartitionImage, TopicImage
from oncelog.core.controller.outcomes import Decided, Refusal, Refused
from oncelog.core.controller.replicas.failover import UncleanOf, rules_of
from oncelog.core.controller.replicas.leadership import (
    ElectionRules,
    finished_reassignment,
    with_leader,
    without_removed,
)
from oncelog.core.controller.replicas.placement import check_replicas


class Reassignment(NamedTuple):
    """None cancels a reassignment."""

    topic: TopicName
    partition: int
    replicas: Sequence[int] | None


def alter_reassignments(
    image: ClusterImage,
    reassignments: Sequence[Reassignment],
    unclean_of: UncleanOf,
    *,
    may_change_factor: bool = True,
) -> Decided[None]:
    """Begin or cancel each reassignment if possible. The last of several for one partition wins."""
    changes: dict[TopicName, dict[int, PartitionImage]] = {}
    outcomes: list[Refusal | None] = []
    for reassignment in reassignments:
        try:
            topic, before = _find(image, reassignment)
            rules = rules_of(image, topic, unclean_of)
            if reassignment.replicas is None:
                after = _cancelled(image, topic, reassignment.partition, before, rules)
            else:
                after = _begun(image, before, reassignment.replicas, may_change_factor=may_change_factor)
                after = _ended(image, after, rules)
        except Refused as refused:
            outcomes.append(refused.refusal)
            continue
        outcomes.append(None)
        changes.setdefault(reassignment.topic, {})[reassignment.partition] = after
    operations = operations_of(image, changes)
    return Decided([*topics_check(image), *operations] if operations else [], outcomes)


def reassigning(topic: TopicImage) -> Iterator[tuple[int, PartitionImage]]:
    for index, partition in enumerate(topic.partitions):
        if partition.adding or partition.removing:
            yield index, partition


def begun(partition: PartitionImage, target: Sequence[BrokerId]) -> PartitionImage:
    """A reassignment to ``target`` replaces another one."""
    # Replicas still being added by the other reassignment lack records: they stay in adding.
    complete = set(partition.replicas).difference(partition.adding)
    removing = tuple(sorted(set(partition.replicas).difference(target)))
    adding = tuple(sorted(set(target).difference(complete)))
    return partition._replace(replicas=(*target, *removing), adding=adding, removing=removing)


def _find(image: ClusterImage, reassignment: Reassignment) -> tuple[TopicImage, PartitionImage]:
    topic = image.topics.get(reassignment.topic)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {reassignment.topic}.")
    if not 0 <= reassignment.partition < len(topic.partitions):
        message = f"Unable to find partition {reassignment.topic}:{reassignment.partition}."
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    return topic, topic.partitions[reassignment.partition]


def _begun(
    image: ClusterImage, partition: PartitionImage, replicas: Sequence[int], *, may_change_factor: bool
) -> PartitionImage:
    target = check_replicas(image, replicas, None)
    factor = len(set(partition.replicas).difference(partition.removing))
    if not may_change_factor and factor != len(target):
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {factor} to {len(target)}",
        )
    return begun(partition, target)


def _ended(image: ClusterImage, partition: PartitionImage, rules: ElectionRules) -> PartitionImage:
    """The partition; its reassignment ends at once if nothing has to be copied."""
    after = finished_reassignment(partition, image.brokers)
    return partition if after is partition else without_removed(partition, with_leader(after, image.brokers, rules))


def _cancelled(
    image: ClusterImage, topic: TopicImage, index: int, partition: PartitionImage, rules: ElectionRules
) -> PartitionImage:
    if not partition.adding and not partition.removing:
        raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = _without(partition.replicas, partition.adding)
    isr = _without(partition.isr, partition.adding)
    if not isr and not rules.unclean:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean "
            "leader election.",
        )
    after = partition._replace(
        replicas=replicas,
        isr=isr or replicas[:1],
        elr=_without(partition.elr, partition.adding),
        adding=(),
        removing=(),
    )
    return without_removed(partition, with_leader(after, image.brokers, rules))


def _without(replicas: Sequence[BrokerId], gone: Sequence[BrokerId]) -> tuple[BrokerId, ...]:
    return tuple(replica for replica in replicas if replica not in gone)
