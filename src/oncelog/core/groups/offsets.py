"""Committed offsets of all groups of a shard, and those of transactions still open. Changed by ``apply`` only.

Invariants:

O1  No empty mapping is kept: a group, topic or producer that is listed has at least one offset.
O2  ``producers_of(group)`` names exactly the producers with a pending offset of the group.
O3  Of two commits of one partition the one written later wins, also when it becomes visible earlier: a transaction
    that commits does not overwrite what was committed after its own record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from oncelog.base.ids import GroupId, ProducerId, TopicName
from oncelog.base.invariant import invariant
from oncelog.core.groups.model import CommittedOffset

PartitionOffsets = dict[int, CommittedOffset]
TopicOffsets = dict[TopicName, PartitionOffsets]
_NOTHING: Mapping[TopicName, PartitionOffsets] = {}


class OffsetMap:
    """Group → topic → partition → offset."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[GroupId, TopicOffsets] = {}

    def get(self, group_id: GroupId, topic: TopicName, partition: int) -> CommittedOffset | None:
        """One committed offset, or None."""
        return self.of_group(group_id).get(topic, {}).get(partition)

    def of_group(self, group_id: GroupId) -> Mapping[TopicName, PartitionOffsets]:
        """All offsets of a group; not to be changed."""
        return self._groups.get(group_id, _NOTHING)

    def groups(self) -> Iterator[GroupId]:
        """Groups that have an offset."""
        return iter(self._groups)

    def groups_with(self, topics: Collection[TopicName]) -> Iterator[GroupId]:
        """Groups that have an offset of one of ``topics``."""
        return (group_id for group_id, of_group in self._groups.items() if not of_group.keys().isdisjoint(topics))

    def put(self, group_id: GroupId, topic: TopicName, partition: int, committed: CommittedOffset) -> None:
        """Set one offset."""
        self._groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = committed

    def remove(self, group_id: GroupId, topic: TopicName, partition: int) -> None:
        """Remove one offset, if it is there."""
        topics = self._groups.get(group_id)
        partitions = None if topics is None else topics.get(topic)
        if topics is None or partitions is None:
            return
        partitions.pop(partition, None)
        if not partitions:
            del topics[topic]
        if not topics:
            del self._groups[group_id]

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._groups

    def __bool__(self) -> bool:
        return bool(self._groups)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetMap) and self._groups == other._groups

    __hash__ = None  # type: ignore[assignment]  # mutable: compared by value, never a key


class OffsetStore:
    """Committed offsets, and pending ones by producer (KIP-98, KIP-447)."""

    __slots__ = ("_pending", "_producers", "_sequence", "committed")

    def __init__(self) -> None:
        self.committed = OffsetMap()
        self._pending: dict[ProducerId, OffsetMap] = {}
        self._producers: dict[GroupId, dict[ProducerId, None]] = {}
        self._sequence = 0

    def next_sequence(self) -> int:
        """The place of a record in the order of the shard's records."""
        self._sequence += 1
        return self._sequence

    def put_pending(
        self, producer_id: ProducerId, group_id: GroupId, topic: TopicName, partition: int, committed: CommittedOffset
    ) -> None:
        """An offset that a transaction has sent; visible when the transaction commits."""
        self._pending.setdefault(producer_id, OffsetMap()).put(group_id, topic, partition, committed)
        self._producers.setdefault(group_id, {})[producer_id] = None

    def remove(self, group_id: GroupId, topic: TopicName, partition: int) -> None:
        """Remove an offset, committed or pending."""
        self.committed.remove(group_id, topic, partition)
        for producer_id in self.producers_of(group_id):
            pending = self._pending[producer_id]
            pending.remove(group_id, topic, partition)
            if group_id not in pending:
                self._forget_producer(group_id, producer_id)
            if not pending:
                del self._pending[producer_id]

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        """The producer's transaction ended: its offsets become visible or are dropped."""
        pending = self._pending.pop(producer_id, None)
        if pending is None:
            return
        for group_id in pending.groups():
            self._forget_producer(group_id, producer_id)
            for topic, partitions in pending.of_group(group_id).items() if committed else ():
                for partition, offset in partitions.items():
                    existing = self.committed.get(group_id, topic, partition)
                    if existing is None or existing.sequence < offset.sequence:
                        self.committed.put(group_id, topic, partition, offset)

    def has_pending(self, group_id: GroupId, topic: TopicName, partition: int) -> bool:
        """Whether an open transaction has sent an offset of the partition."""
        return any(
            self._pending[producer_id].get(group_id, topic, partition) is not None
            for producer_id in self._producers.get(group_id, ())
        )

    def has_open_transactions(self, group_id: GroupId) -> bool:
        """Whether an open transaction has sent any offset of the group."""
        return group_id in self._producers

    def producers_of(self, group_id: GroupId) -> list[ProducerId]:
        """Producers whose open transactions have sent offsets of the group."""
        return list(self._producers.get(group_id, ()))

    def has_any(self, group_id: GroupId) -> bool:
        """Whether the group has an offset, committed or pending."""
        return group_id in self.committed or group_id in self._producers

    def partitions_of(
        self, group_id: GroupId, topics: Collection[TopicName] | None = None
    ) -> list[tuple[TopicName, int]]:
        """Every partition (of ``topics``, if given) with an offset of the group, committed or pending, each once."""
        found: dict[tuple[TopicName, int], None] = {}
        maps = [self.committed, *(self._pending[producer_id] for producer_id in self.producers_of(group_id))]
        for offsets in maps:
            of_group = offsets.of_group(group_id)
            for topic in of_group if topics is None else topics:
                found.update(dict.fromkeys((topic, partition) for partition in of_group.get(topic, ())))
        return list(found)

    def group_ids(self, topics: Collection[TopicName] | None = None) -> list[GroupId]:
        """Every group that has an offset (of ``topics``, if given), committed or pending, each once."""
        committed = self.committed.groups() if topics is None else self.committed.groups_with(topics)
        return list(dict.fromkeys([*committed, *self._producers]))

    def check(self) -> None:
        """Raise InvariantViolation unless O1 and O2 hold."""
        for offsets in [self.committed, *self._pending.values()]:
            for group_id in offsets.groups():
                invariant(all(offsets.of_group(group_id).values()), "O1", group=group_id)
        invariant(all(self._pending.values()), "O1: a producer without offsets")
        named = {(group_id, producer_id) for group_id, ids in self._producers.items() for producer_id in ids}
        pending = {(group_id, producer_id) for producer_id, m in self._pending.items() for group_id in m.groups()}
        invariant(named == pending, "O2", named=named, pending=pending)

    def _forget_producer(self, group_id: GroupId, producer_id: ProducerId) -> None:
        producers = self._producers[group_id]
        del producers[producer_id]
        if not producers:
            del self._producers[group_id]
