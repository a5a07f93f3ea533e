"""Reassignments of replicas (KIP-455, KIP-860): begun and cancelled here by operators, ended by the controller.

While one is under way the partition's replicas are those it is to have, followed by those it gives up; ``adding`` and
``removing`` say which. ``leadership.finished_reassignment`` ends it when all that are added are in sync. Refusals are
Apache Kafka 4.3's, sentence for sentence.
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
    """The replicas a partition is to have; None takes back the reassignment under way."""

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
    """Begin or cancel each reassignment that can be. Of several for one partition the last one holds."""
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
    """The partitions of a topic whose replicas are on the move."""
    for index, partition in enumerate(topic.partitions):
        if partition.adding or partition.removing:
            yield index, partition


def begun(partition: PartitionImage, target: Sequence[BrokerId]) -> PartitionImage:
    """The partition with a reassignment to ``target`` under way; another one under way is replaced by it.

    Replicas that the other one is adding are among ``replicas`` already, and lack records: they are waited for still.
    """
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
    """The partition, its reassignment ended at once where nothing has to be copied."""
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
