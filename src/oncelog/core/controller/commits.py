"""Splits changes of many partitions into commits of bounded size; the cluster is consistent after each.

Each commit changes whole partitions: a partition's state, and its replicas in the topic's node if they change. Commits
are written in order, and each names the node versions that the one before it leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from oncelog.base.ids import TopicName
from oncelog.base.tree import Check, Operation, Set
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.image.model import PartitionImage, TopicImage

T = TypeVar("T")

COMMIT_BYTES: Final = 256 * 1024
_OPERATION_BYTES: Final = 64
"""An operation besides its path and value."""
_PARTITIONS_A_GROUP: Final = 100
_STATE_BYTES: Final = 600
"""A partition's state with its path, the longest topic name, and a dozen replicas."""
_ASSIGNMENT_BYTES: Final = 40
"""A partition in its topic's node: three replicas, three being added, and their entries in the two lists."""

Changes = Mapping[TopicName, Mapping[int, PartitionImage]]
"""New partition states by topic and index; ``version`` is that of the state they were decided on."""


def commits_of(
    image: ClusterImage, changes: Changes, rights: Sequence[Check] = (), limit_bytes: int = COMMIT_BYTES
) -> list[list[Operation]]:
    """Commits of about ``limit_bytes`` that begin with ``rights``."""
    commits: list[list[Operation]] = []
    # Full from the start, so that the first group opens a commit.
    size = limit_bytes
    for group in _groups(image, changes, limit_bytes):
        group_size = size_bytes(group)
        if size + group_size > limit_bytes:
            commits.append(list(rights))
            size = 0
        commits[-1] += group
        size += group_size
    return commits


def operations_of(image: ClusterImage, changes: Changes) -> list[Operation]:
    return [
        operation
        for name, partitions in changes.items()
        for operation in _topic_group(image, image.topics[name], partitions)[1]
    ]


def partition_batches(
    image: ClusterImage, items: Sequence[T], topic_of: Callable[[T], TopicName], *, moves: bool
) -> Iterator[Sequence[T]]:
    """Batches that fit a commit, of items that change one partition each. With ``moves`` the topic's node counts once
    per batch."""
    batch: list[T] = []
    size, counted = 0, set[TopicName]()
    for item in items:
        name = topic_of(item)
        node_size = 0
        if moves and name in image.topics and name not in counted:
            node_size = _ASSIGNMENT_BYTES * len(image.topics[name].partitions)
        if batch and size + node_size + _STATE_BYTES > COMMIT_BYTES:
            yield batch
            batch, size, counted = [], 0, set()
        if name not in counted:
            size += node_size
            counted.add(name)
        batch.append(item)
        size += _STATE_BYTES
    if batch:
        yield batch


def size_bytes(operations: Iterable[Operation]) -> int:
    return sum(
        _OPERATION_BYTES + len(operation.path) + len(getattr(operation, "value", b"")) for operation in operations
    )


def _groups(image: ClusterImage, changes: Changes, limit_bytes: int) -> Iterator[list[Operation]]:
    """Groups of operations that must not be split: some partitions of one topic."""
    at_a_time = max(1, min(_PARTITIONS_A_GROUP, limit_bytes // 1024))
    for name, partitions in changes.items():
        topic = image.topics[name]
        items = list(partitions.items())
        for start in range(0, len(items), at_a_time):
            # The next group of the topic names the versions that this one leaves.
            topic, operations = _topic_group(image, topic, dict(items[start : start + at_a_time]))
            if operations:
                yield operations


def _topic_group(
    image: ClusterImage, topic: TopicImage, partitions: Mapping[int, PartitionImage]
) -> tuple[TopicImage, list[Operation]]:
    operations: list[Operation] = []
    after = list(topic.partitions)
    for index, partition in partitions.items():
        before = after[index]
        after[index] = partition
        if _state(before) != _state(partition) or before.assignment != partition.assignment:
            # The state is rewritten with its replicas even if unchanged: its version covers both, so that a leader's
            # in-sync proposal for other replicas is refused.
            value = layout.state_value(partition, image.controller_epoch)
            operations.append(Set(layout.state_path(topic.name, index), value, before.version))
    moved = any(topic.partitions[index].assignment != after[index].assignment for index in partitions)
    if moved:
        value = layout.topic_value(topic.topic_id, [partition.assignment for partition in after])
        operations.append(Set(layout.topic_path(topic.name), value, topic.version))
    version = topic.version + moved
    return TopicImage(
        topic.name, topic.topic_id, tuple(after), topic.configs, version, topic.config_version
    ), operations


def _state(partition: PartitionImage) -> tuple[object, ...]:
    return (partition.leader, partition.leader_epoch, partition.isr, partition.leader_broker_epoch, partition.elr)
