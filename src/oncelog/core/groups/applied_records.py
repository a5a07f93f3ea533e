"""Applies the records of ``__consumer_offsets`` to the groups and offsets of a shard.

The rule: persisted state changes only here, for a record that was just appended as for one of a log that is loaded.
"""

from __future__ import annotations

from collections import Counter
from sys import intern

from oncelog.base.ids import NO_PRODUCER_ID, GroupId, ProducerId, TopicName
from oncelog.base.invariant import invariant
from oncelog.core.groups.any_group import AnyGroup
from oncelog.core.groups.classic import persistence
from oncelog.core.groups.classic.group import ClassicGroup
from oncelog.core.groups.classic.rebalance import Rebalance
from oncelog.core.groups.classic.states import GroupEvent, GroupState
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.consumer_groups import ConsumerGroups
from oncelog.core.groups.member_quota import MemberQuota, share_partitions_of
from oncelog.core.groups.model import CLASSIC_PROTOCOL
from oncelog.core.groups.offset_records import committed_of
from oncelog.core.groups.offsets import OffsetStore
from oncelog.core.groups.share.group import ShareGroup
from oncelog.core.groups.share_groups import ShareGroups
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal import consumer_group_records, group_records, share_group_records
from oncelog.records.internal.group_records import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, Unknown
from oncelog.records.internal.share_group_records import ShareKey


class AppliedRecords:
    def __init__(
        self,
        groups: dict[GroupId, AnyGroup],
        offsets: OffsetStore,
        rebalance: Rebalance,
        consumers: ConsumerGroups,
        share: ShareGroups,
        quota: MemberQuota,
        rebalances: Counter[str],
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._rebalance = rebalance
        self._consumers = consumers
        self._share = share
        self._quota = quota
        self._rebalances = rebalances
        self.is_loading = True
        self.skipped: Counter[str] = Counter()
        """Unreadable records by reason, for the node to log; the state of an earlier record stays."""

    def apply(self, key: bytes, value: bytes | None, *, producer_id: ProducerId = NO_PRODUCER_ID) -> None:
        """Apply one record of the log; ``producer_id`` is that of its batch if that is transactional."""
        named = group_records.decode_key(key)
        # Records of unknown kinds and versions are skipped: newer group protocols may have written them.
        if isinstance(named, OffsetCommitKey):
            self._apply_offset(named, value, producer_id)
        elif isinstance(named, GroupMetadataKey):
            self._apply_group(GroupId(named.group), value)
        elif isinstance(named, Unknown):
            self.skipped[named.reason] += 1
        else:
            self._apply_newer(named, value)

    def _apply_offset(self, named: OffsetCommitKey, value: bytes | None, producer_id: ProducerId) -> None:
        # Interned: a hundred thousand groups may have offsets of the same topic.
        group_id, topic, partition = GroupId(named.group), TopicName(intern(named.topic)), named.partition
        sequence = self._offsets.next_sequence()
        if value is None:
            self._offsets.remove(group_id, topic, partition)
            return
        decoded = group_records.decode_offset_commit_value(value)
        if isinstance(decoded, Unknown):
            self.skipped[decoded.reason] += 1
            return
        # A commit without members makes a simple group (KIP-211).
        if group_id not in self._groups:
            self._groups[group_id] = ClassicGroup(group_id, decoded.commit_timestamp)
        committed = committed_of(decoded, sequence)
        if producer_id == NO_PRODUCER_ID:
            self._offsets.committed.put(group_id, topic, partition, committed)
        else:
            self._offsets.put_pending(producer_id, group_id, topic, partition, committed)

    def _apply_newer(self, key: consumer_group_records.Key | ShareKey, value: bytes | None) -> None:
        """Apply a record of a consumer group or a share group."""
        group_id = GroupId(key.group)
        group = self._groups.get(group_id)
        before, partitions_before = _held_bytes(group), share_partitions_of(group)
        try:
            if isinstance(key, ShareKey):
                self._share.apply(key, None if value is None else share_group_records.decode_value(key, value))
            else:
                self._consumers.apply(key, None if value is None else consumer_group_records.decode_value(key, value))
        except CorruptBatch as error:
            # A record of a newer release must not keep the partition from loading.
            self.skipped[str(error)] += 1
            return
        group = self._groups.get(group_id)
        self._quota.changed(_held_bytes(group) - before, share_partitions_of(group) - partitions_before)
        if group_id not in self._groups and self._offsets.has_any(group_id):
            # Offsets that outlive their group form a simple group.
            self._groups[group_id] = ClassicGroup(group_id)

    def _apply_group(self, group_id: GroupId, value: bytes | None) -> None:
        group = self._groups.get(group_id)
        if value is None:
            # The tombstone of a classic group that was upgraded may follow the first records of its successor.
            if isinstance(group, ClassicGroup):
                self._remove(group)
            return
        decoded = group_records.decode_group_metadata_value(value)
        if isinstance(decoded, Unknown):
            self.skipped[decoded.reason] += 1
            return
        if isinstance(group, ConsumerGroup):
            # Downgraded: the newest value decides the group's kind.
            self._consumers.forget(group)
            group = None
        elif isinstance(group, ShareGroup):
            self._share.forget(group)
            group = None
        # After a downgrade the offsets of the group have made a simple one already.
        is_downgraded = group is not None and group.state is GroupState.EMPTY and bool(decoded.members)
        if self.is_loading or group is None or is_downgraded:
            self._groups[group_id] = persistence.group_of(group_id, decoded)
        elif group.state is GroupState.COMPLETING_REBALANCE and decoded.members:
            self._install_assignment(group, decoded)
        else:
            invariant(decoded.generation in (0, group.generation), "a record of another generation", group=group_id)

    def _install_assignment(self, group: ClassicGroup, decoded: GroupMetadataValue) -> None:
        """Make the generation Stable: its assignment is in the log. (``sync`` has answered the members.)"""
        invariant(decoded.generation == group.generation, "an assignment of another generation", group=group.group_id)
        assignment = persistence.assignments_of(decoded)
        for member in group.members.values():
            member.assignment = assignment.get(member.member_id, b"")
        group.move(GroupEvent.ASSIGNED, group.state_timestamp_ms)
        self._rebalances[CLASSIC_PROTOCOL] += 1

    def _remove(self, group: ClassicGroup) -> None:
        group_id = group.group_id
        del self._groups[group_id]
        self._rebalance.forget(group)
        group.move(GroupEvent.REMOVED, group.state_timestamp_ms)
        if self._offsets.has_any(group_id):
            # Compaction does not keep the order between keys: offsets that outlive their group form a simple group.
            self._groups[group_id] = ClassicGroup(group_id, group.state_timestamp_ms)


def _held_bytes(group: AnyGroup | None) -> int:
    """The memory that the quota counts for a group of a newer protocol at all times."""
    return 0 if group is None or isinstance(group, ClassicGroup) else group.size_bytes()
