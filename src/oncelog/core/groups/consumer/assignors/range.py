"""The ``range`` assignor: each topic in contiguous ranges, over its subscribers in the order of their ids.

Static members come first, by instance id: a restart keeps their ranges. Topics with the same subscribers and as many
partitions are assigned alike, so that joins between them stay within a member.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from oncelog.core.groups.consumer.assignors.spec import Assignment, GroupSpec

NAME: Final = "range"


def assign(group: GroupSpec) -> Assignment:
    order = sorted(
        group.members,
        key=lambda member_id: (
            group.members[member_id].instance_id is None,
            group.members[member_id].instance_id or member_id,
        ),
    )
    subscribers = Counter(topic for member in group.members.values() for topic in member.topics)
    next_partition = dict.fromkeys(subscribers, 0)
    larger_ranges = {topic: group.partition_counts[topic] % count for topic, count in subscribers.items()}
    assignment: Assignment = {}
    for member_id in order:
        assignment[member_id] = share = {}
        for topic in group.members[member_id].topics:
            size = group.partition_counts[topic] // subscribers[topic]
            if larger_ranges[topic]:
                larger_ranges[topic] -= 1
                size += 1
            if size:
                start = next_partition[topic]
                share[topic] = frozenset(range(start, start + size))
                next_partition[topic] = start + size
    return assignment
