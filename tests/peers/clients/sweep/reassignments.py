"""AlterPartitionReassignments and ListPartitionReassignments of one broker."""

from __future__ import annotations

from typing import Final

from oncelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from oncelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.peers.clients.sweep.wire import Sweep, Wire, versions


def _topic(name: str, *partitions: tuple[int, list[int] | None]) -> ReassignableTopic:
    return ReassignableTopic(
        name=name,
        partitions=[ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in partitions],
    )


def _alter(wire: Wire) -> None:
    wire.topic("sx-move", 2)
    for version in versions(AlterPartitionReassignmentsRequest):
        for topics in (
            [],
            [_topic("sx-move")],
            [_topic("sx-move", (0, [1]), (1, [1]))],
            [_topic("sx-move", (0, [1]), (0, [1]), (0, [2]), (0, [1, 2]), (0, [1, 1]), (0, []), (0, None), (7, [1]))],
            [_topic("sx-move", (7, None), (-1, [1])), _topic("sx-nowhere", (0, [1])), _topic("", (0, [1]))],
            [_topic("sx-move", (0, [1])), _topic("sx-move", (1, None), (0, [1]))],
        ):
            for timeout_ms in (5000, 0):
                wire.call(AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=timeout_ms), version)
            if version >= 1:
                kept = AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=5000)
                kept.allow_replication_factor_change = False
                wire.call(kept, version)


def _list(wire: Wire) -> None:
    wire.topic("sx-moving", 2)
    for version in versions(ListPartitionReassignmentsRequest):
        for topics in (
            None,
            [],
            [ListPartitionReassignmentsTopics(name="sx-moving", partition_indexes=[0, 9])],
            [ListPartitionReassignmentsTopics(name="sx-nowhere", partition_indexes=[0])],
        ):
            for timeout_ms in (5000, 0):
                wire.call(ListPartitionReassignmentsRequest(topics=topics, timeout_ms=timeout_ms), version)


SWEEPS: Final[dict[str, Sweep]] = {"alter-partition-reassignments": _alter, "list-partition-reassignments": _list}
