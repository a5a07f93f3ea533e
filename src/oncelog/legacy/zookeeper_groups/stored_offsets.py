"""Offsets of a group in ZooKeeper: persistent nodes ``/consumers/G/offsets/T/P`` with the next offset to read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.tree import ANY_VERSION, Check, Create, Operation, Set
from oncelog.legacy.zookeeper_groups.machine.nodes import (
    CONSUMERS,
    group_path,
    offset_path,
    offset_value,
    offsets_path,
    read_offset,
)

if TYPE_CHECKING:
    from oncelog.coordination.zookeeper.client import ZooKeeperClient

_TRANSACTION_SIZE = 500  # Offsets in one transaction.


def read_offsets(
    session: ZooKeeperClient, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offsets of the partitions that have one. Raises ClientError for an invalid value."""
    paths = {offset_path(group, partition): partition for partition in partitions}
    return {
        paths[path]: read_offset(path, node[0])
        for path, node in session.get_all(paths)
        if node is not None and node[0] != b""
    }


def all_offsets(session: ZooKeeperClient, group: str) -> dict[TopicPartition, int]:
    topics = sorted(session.children(offsets_path(group)))
    partitions = [
        TopicPartition(TopicName(path.rpartition("/")[2]), int(name))
        for path, names in session.children_of(offsets_path(group, topic) for topic in topics)
        for name in names
        if name.isascii() and name.isdigit()
    ]
    return read_offsets(session, group, sorted(partitions))


def write_offsets(
    session: ZooKeeperClient,
    group: str,
    offsets: Mapping[TopicPartition, int],
    guards: Mapping[TopicPartition, str] | None = None,
) -> None:
    """Write offsets unconditionally. ``guards`` are nodes that must exist; if one is missing, Refused is raised and its
    transaction is not written.
    """
    from oncelog.coordination.zookeeper.client import Reason, Refused

    rows = list(offsets.items())
    for first in range(0, len(rows), _TRANSACTION_SIZE):
        part = rows[first : first + _TRANSACTION_SIZE]
        missing: set[str] = set()
        while True:
            operations: list[Operation] = [Check(guards[p], ANY_VERSION) for p, _ in part] if guards else []
            guarded = len(operations)
            for partition, offset in part:
                path, value = offset_path(group, partition), offset_value(offset)
                operations.append(Create(path, value) if path in missing else Set(path, value, ANY_VERSION))
            try:
                session.transact(operations)
                break
            except Refused as refusal:
                refused = operations[refusal.index]
                if refusal.index < guarded:
                    raise
                if refusal.reason is Reason.EXISTS:
                    missing.discard(refused.path)
                elif refusal.reason is Reason.ABSENT and refused.path not in missing:
                    above = refused.path.rpartition("/")[0]
                    session.ensure([CONSUMERS, group_path(group), offsets_path(group), above])
                    missing.add(refused.path)
                else:
                    raise
