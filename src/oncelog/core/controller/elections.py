"""Leader elections that an operator asks for (KIP-183, KIP-460).

Preferred: the first replica leads, if it is alive and in sync. Unclean: a partition without a leader gets any live
replica, in sync or not; its records beyond what that replica has are lost, which the operator has asked for. Each
election raises the leader epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, LeaderEpoch, TopicName
from oncelog.base.tree import Operation, Set
from oncelog.core.controller import layout
from oncelog.core.controller.image import ClusterImage, PartitionImage
from oncelog.core.controller.outcomes import Decided, Refusal, Refused


class ElectionType(IntEnum):
    """Kinds of elections, with the codes of the protocol."""

    PREFERRED = 0
    UNCLEAN = 1


def elect(
    image: ClusterImage, election: ElectionType, partitions: Sequence[tuple[TopicName, int]]
) -> Decided[BrokerId]:
    """Elect for each partition that needs it; the outcome is its new leader. A partition named twice is
    elected for once."""
    operations: dict[str, Operation] = {}
    outcomes: list[BrokerId | Refusal] = []
    for topic, index in partitions:
        try:
            partition = _find(image, topic, index)
            leader, isr = _winner(image, election, partition)
        except Refused as refused:
            outcomes.append(refused.refusal)
            continue
        path = layout.state_path(topic, index)
        after = partition._replace(
            leader=leader,
            leader_epoch=LeaderEpoch(partition.leader_epoch + 1),
            isr=isr,
            leader_broker_epoch=image.brokers[leader].epoch,
        )
        operations[path] = Set(path, layout.state_value(after, image.controller_epoch), partition.version)
        outcomes.append(leader)
    return Decided(list(operations.values()), outcomes)


def _find(image: ClusterImage, topic: TopicName, index: int) -> PartitionImage:
    found = image.topics.get(topic)
    if found is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
    if not 0 <= index < len(found.partitions):
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}")
    return found.partitions[index]


def _winner(
    image: ClusterImage, election: ElectionType, partition: PartitionImage
) -> tuple[BrokerId, tuple[BrokerId, ...]]:
    """The new leader and the in-sync replicas under it."""
    if election is ElectionType.UNCLEAN:
        if partition.leader in image.brokers:
            raise Refused(ErrorCode.ELECTION_NOT_NEEDED, _NOT_NEEDED)
        for replica in (*partition.isr, *partition.replicas):
            if replica in image.brokers:
                return replica, (partition.isr if replica in partition.isr else (replica,))
        raise Refused(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "Eligible topic partition leaders are not available.",
        )
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        raise Refused(ErrorCode.ELECTION_NOT_NEEDED, _NOT_NEEDED)
    if preferred not in image.brokers or preferred not in partition.isr:
        raise Refused(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
    return preferred, partition.isr


_NOT_NEEDED = "Leader election not needed for topic partition."
