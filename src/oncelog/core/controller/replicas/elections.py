"""Voluntary elections: those that operators request (KIP-183, KIP-460), and the return to preferred leaders.

A preferred election makes the first replica leader if it is alive and in sync. An unclean election gives a leaderless
partition any live replica, if possible an in-sync or eligible one, and may lose records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, TopicName
from oncelog.base.tree import Operation
from oncelog.core.controller.commits import COMMIT_BYTES, commits_of, operations_of
from oncelog.core.controller.fencing import controller_check, topics_check
from oncelog.core.controller.image.cluster_image import Brokers, ClusterImage, PartitionImage, TopicImage, is_alive
from oncelog.core.controller.outcomes import Decided, Refusal, Refused
from oncelog.core.controller.replicas.leadership import ElectionRules, elected, with_leader
from oncelog.core.controller.replicas.replica_sets import min_insync_replicas

MAX_REBALANCED: Final = 1000
"""Preferred leaders elected at a time, as in Apache Kafka; the next check elects more."""


class ElectionType(IntEnum):
    """Kinds of elections, with the codes of the protocol."""

    PREFERRED = 0
    UNCLEAN = 1


def elect(
    image: ClusterImage, election: ElectionType, partitions: Sequence[tuple[TopicName, int]]
) -> Decided[BrokerId]:
    """The outcome is the new leader. A repeated partition is elected once."""
    changes: dict[TopicName, dict[int, PartitionImage]] = {}
    outcomes: list[BrokerId | Refusal] = []
    for name, index in partitions:
        try:
            topic, partition = _find(image, name, index)
            after = _elected(image, election, topic, partition)
        except Refused as refused:
            outcomes.append(refused.refusal)
            continue
        changes.setdefault(name, {})[index] = after
        outcomes.append(after.leader)
    operations = operations_of(image, changes)
    return Decided([*topics_check(image), *operations] if operations else [], outcomes)


def has_unpreferred_leader(partition: PartitionImage, brokers: Brokers) -> bool:
    """True if the preferred replica could lead but another one does."""
    preferred = partition.replicas[0]
    broker = brokers.get(preferred)
    return (
        partition.leader != preferred
        and preferred in partition.isr
        # A replica that is being removed should not lead.
        and preferred not in partition.removing
        and broker is not None
        and broker.may_lead
    )


def rebalance(
    image: ClusterImage, topics: Iterable[TopicImage], limit_bytes: int = COMMIT_BYTES
) -> list[list[Operation]]:
    """Commits that return up to ``MAX_REBALANCED`` partitions to their preferred leaders."""
    brokers = image.brokers
    changes: dict[TopicName, dict[int, PartitionImage]] = {}
    left = MAX_REBALANCED
    for topic in topics:
        for index, partition in enumerate(topic.partitions):
            if left and has_unpreferred_leader(partition, brokers):
                changes.setdefault(topic.name, {})[index] = elected(partition, partition.replicas[0], brokers)
                left -= 1
    return commits_of(image, changes, [*controller_check(image), *topics_check(image)], limit_bytes)


def _find(image: ClusterImage, name: TopicName, index: int) -> tuple[TopicImage, PartitionImage]:
    topic = image.topics.get(name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    if not 0 <= index < len(topic.partitions):
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    return topic, topic.partitions[index]


def _elected(
    image: ClusterImage, election: ElectionType, topic: TopicImage, partition: PartitionImage
) -> PartitionImage:
    """Raises Refused."""
    brokers = image.brokers
    if election is ElectionType.UNCLEAN:
        # An unclean election must never replace a working leader.
        if is_alive(brokers, partition.leader):
            raise Refused(ErrorCode.ELECTION_NOT_NEEDED, _NOT_NEEDED)
        after = with_leader(partition, brokers, ElectionRules(min_insync_replicas(image, topic), unclean=True))
        if not is_alive(brokers, after.leader):
            raise Refused(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."
            )
        return after
    if partition.leader == partition.replicas[0]:
        raise Refused(ErrorCode.ELECTION_NOT_NEEDED, _NOT_NEEDED)
    if not has_unpreferred_leader(partition, brokers):
        raise Refused(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
    return elected(partition, partition.replicas[0], brokers)


_NOT_NEEDED: Final = "Leader election not needed for topic partition."
