"""Checks of the reassignments that an operator asks for (KIP-455).

Replicas are not moved: there is one broker, and so the only assignment that passes is the one that is there.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName
from oncelog.core.controller.image import ClusterImage
from oncelog.core.controller.outcomes import Refused
from oncelog.core.controller.placement import check_replicas


def check_reassignment(image: ClusterImage, topic: TopicName, index: int, replicas: Sequence[int] | None) -> None:
    """Raise Refused unless the partition can have ``replicas``; None cancels a reassignment."""
    found = image.topics.get(topic)
    if found is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}.")
    if not 0 <= index < len(found.partitions):
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{index}.")
    if replicas is None:
        raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    if check_replicas(image, replicas, None) != found.partitions[index].replicas:
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Replicas are not moved from broker to broker.")
