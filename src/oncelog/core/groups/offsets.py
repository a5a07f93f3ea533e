"""Committed offsets of a shard's groups, and pending ones of open transactions. Only ``apply`` changes them.

Invariants O1 to O3 are in docs/internals/groups.md; ``_senders`` has the producers of O2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Generic, TypeVar

from oncelog.base.ids import GroupId, ProducerId, TopicName
from oncelog.base.invariant import invariant
from oncelog.core.groups.model import CommittedOffset

V = TypeVar("V")
Producers = dict[ProducerId, None]
"""An ordered set."""


class PartitionMap(Generic[V]):
    """Group → topic → partition → a value: an offset, or the producers that sent one."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[GroupId, dict[TopicName, dict[int, V]]] = {}

    def get(self, group_id: GroupId, topic: TopicName, partition: int) -> V | None:
        return self.of_group(group_id).get(topic, {}).get(partition)

    def of_group(self, group_id: GroupId) -> Mapping[TopicName, dict[int, V]]:
        return self._groups.get(group_id, {})

    def groups(self) -> Iterator[GroupId]:
        return iter(self._groups)

    def __iter__(self) -> Iterator[tuple[GroupId, TopicName, int, V]]:
        for group_id, topics in self._groups.items():
            for topic, partitions in topics.items():
                for partition, value in partitions.items():
                    yield group_id, topic, partition, value

    def groups_with(self, topics: Collection[TopicName]) -> Iterator[GroupId]:
        return (group_id for group_id, of_group in self._groups.items() if not of_group.keys().isdisjoint(topics))

    def put(self, group_id: GroupId, topic: TopicName, partition: int, value: V) -> None:
        self._groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = value

    def remove(self, group_id: GroupId, topic: TopicName, partition: int) -> None:
        topics = self._groups.get(group_id)
        partitions = None if topics is None else topics.get(topic)
        if topics is None or partitions is None:
            return
        partitions.pop(partition, None)
        # O1: no empty mappings.
        if not partitions:
            del topics[topic]
        if not topics:
            del self._groups[group_id]

    def check(self) -> None:
        """Raise InvariantViolation unless O1 holds."""
        for group_id, topics in self._groups.items():
            invariant(topics and all(topics.values()), "O1", group=group_id)

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._groups

    def __bool__(self) -> bool:
        return bool(self._groups)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionMap) and self._groups == other._groups

    __hash__ = None  # type: ignore[assignment]  # mutable: compared by value, never a key


OffsetMap = PartitionMap[CommittedOffset]


class OffsetStore:
    __slots__ = ("_pending", "_senders", "_sequence", "committed")

    def __init__(self) -> None:
        self.committed = OffsetMap()
        self._pending: dict[ProducerId, OffsetMap] = {}
        self._senders: PartitionMap[Producers] = PartitionMap()
        self._sequence = 0

    def next_sequence(self) -> int:
        """The next position in the order of the shard's records."""
        self._sequence += 1
        return self._sequence

    def put_pending(
        self, producer_id: ProducerId, group_id: GroupId, topic: TopicName, partition: int, committed: CommittedOffset
    ) -> None:
        """The offset becomes visible when the transaction commits."""
        self._pending.setdefault(producer_id, OffsetMap()).put(group_id, topic, partition, committed)
        senders = self._senders.get(group_id, topic, partition)
        if senders is None:
            self._senders.put(group_id, topic, partition, {producer_id: None})
        else:
            senders[producer_id] = None

    def remove(self, group_id: GroupId, topic: TopicName, partition: int) -> None:
        # Pending ones too: the transaction must not bring the offset back when it commits.
        self.committed.remove(group_id, topic, partition)
        for producer_id in self._senders.get(group_id, topic, partition) or ():
            pending = self._pending[producer_id]
            pending.remove(group_id, topic, partition)
            if not pending:
                del self._pending[producer_id]
        self._senders.remove(group_id, topic, partition)

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        """The offsets become visible or are dropped."""
        for group_id, topic, partition, offset in self._pending.pop(producer_id, ()):
            self._no_longer_sent(producer_id, group_id, topic, partition)
            if committed:
                existing = self.committed.get(group_id, topic, partition)
                # O3: an offset committed after the transaction's record wins.
                if existing is None or existing.sequence < offset.sequence:
                    self.committed.put(group_id, topic, partition, offset)

    def _no_longer_sent(self, producer_id: ProducerId, group_id: GroupId, topic: TopicName, partition: int) -> None:
        senders = self._senders.get(group_id, topic, partition) or {}
        del senders[producer_id]
        if not senders:
            self._senders.remove(group_id, topic, partition)

    def has_pending(self, group_id: GroupId, topic: TopicName, partition: int) -> bool:
        return self._senders.get(group_id, topic, partition) is not None

    def senders(self, group_id: GroupId) -> Mapping[TopicName, Mapping[int, Collection[ProducerId]]]:
        """The producers with pending offsets of a group, by topic and partition; usually none."""
        return self._senders.of_group(group_id)

    def has_open_transactions(self, group_id: GroupId) -> bool:
        return group_id in self._senders

    def has_any(self, group_id: GroupId) -> bool:
        return group_id in self.committed or group_id in self._senders

    def partitions_of(
        self, group_id: GroupId, topics: Collection[TopicName] | None = None
    ) -> list[tuple[TopicName, int]]:
        """All partitions (of ``topics``, if given) with a committed or pending offset of the group, without
        duplicates."""
        partitions: dict[tuple[TopicName, int], None] = {}
        for of_group in (self.committed.of_group(group_id), self._senders.of_group(group_id)):
            for topic in of_group if topics is None else topics:
                partitions.update(dict.fromkeys((topic, partition) for partition in of_group.get(topic, ())))
        return list(partitions)

    def newest_sequence(self, group_id: GroupId, topic: TopicName, partition: int) -> int:
        """The sequence of the newest offset, committed or pending; −1 without one."""
        senders = self._senders.get(group_id, topic, partition) or ()
        offsets = [self._pending[producer_id].get(group_id, topic, partition) for producer_id in senders]
        offsets.append(self.committed.get(group_id, topic, partition))
        return max((offset.sequence for offset in offsets if offset is not None), default=-1)

    def group_ids(self, topics: Collection[TopicName]) -> list[GroupId]:
        """All groups with a committed or pending offset of ``topics``, without duplicates."""
        return list(dict.fromkeys([*self.committed.groups_with(topics), *self._senders.groups_with(topics)]))

    def all_group_ids(self) -> list[GroupId]:
        return list(dict.fromkeys([*self.committed.groups(), *self._senders.groups()]))

    def pending(self) -> dict[ProducerId, dict[tuple[GroupId, TopicName, int], CommittedOffset]]:
        return {
            producer_id: {(group_id, topic, partition): offset for group_id, topic, partition, offset in offsets}
            for producer_id, offsets in self._pending.items()
        }

    def check(self) -> None:
        """Raise InvariantViolation unless O1 and O2 hold."""
        self.committed.check()
        self._senders.check()
        for offsets in self._pending.values():
            offsets.check()
        invariant(all(self._pending.values()), "O1: a producer without offsets")
        named = {(*place, producer_id) for *place, senders in self._senders for producer_id in senders}
        pending = {(*place, producer_id) for producer_id, m in self._pending.items() for *place, _ in m}
        # Compared as sets of (group, topic, partition, producer).
        invariant(named == pending, "O2", named=named, pending=pending)
        invariant(all(senders for *_, senders in self._senders), "O2: a partition without a sender")
