"""Members and groups of the new protocol as records of ``__consumer_offsets``, in Apache Kafka's order."""

from __future__ import annotations

from collections.abc import Iterable

from oncelog.base.ids import GroupId, MemberId
from oncelog.core.groups.consumer.group import ConsumerGroup, ResolvedRegex
from oncelog.core.groups.consumer.member import ConsumerMember
from oncelog.core.groups.model import Record
from oncelog.core.groups.modern.members import Partitions
from oncelog.records.internal import consumer_group_records, group_records
from oncelog.records.internal.consumer_group_records import (
    ClassicMemberValue,
    ClassicProtocolValue,
    ConsumerGroupKey,
    ConsumerGroupValue,
    CurrentMemberKey,
    CurrentMemberValue,
    Key,
    MemberKey,
    MemberValue,
    PartitionMetadataKey,
    RegexKey,
    RegexValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetMemberKey,
    TargetMemberValue,
    Value,
)
from oncelog.records.internal.group_records import GroupMetadataKey, GroupMetadataValue

GroupRecord = tuple[Key, Value | None]
ClassicRecord = tuple[GroupMetadataKey, GroupMetadataValue | None]
AnyRecord = GroupRecord | ClassicRecord
"""A conversion writes records of both kinds of group."""


def encode(record: AnyRecord) -> Record:
    """A record's key and value in bytes; None is a tombstone."""
    key, value = record
    if isinstance(key, GroupMetadataKey):
        encoded = None
        if isinstance(value, GroupMetadataValue):
            encoded = group_records.encode_group_metadata_value(value)
        return group_records.encode_group_metadata_key(key.group), encoded
    if value is None or isinstance(value, GroupMetadataValue):
        return consumer_group_records.encode_key(key), None
    return consumer_group_records.encode_key(key), consumer_group_records.encode_value(value)


def classic_tombstone(group_id: GroupId) -> ClassicRecord:
    return GroupMetadataKey(group_id), None


def subscription(group_id: GroupId, member: ConsumerMember) -> GroupRecord:
    classic = None
    if member.classic is not None:
        offers = tuple(ClassicProtocolValue(*protocol) for protocol in member.classic.protocols)
        classic = ClassicMemberValue(member.classic.session_timeout_ms, offers)
    value = MemberValue(
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted(member.topics)),
        member.regex,
        member.rebalance_timeout_ms,
        member.assignor,
        classic,
    )
    return MemberKey(group_id, member.member_id), value


def epoch(group_id: GroupId, number: int, metadata_hash: int) -> GroupRecord:
    return ConsumerGroupKey(group_id), ConsumerGroupValue(number, metadata_hash)


def target(group_id: GroupId, member_id: MemberId, partitions: Partitions) -> GroupRecord:
    value = TargetMemberValue({topic: tuple(sorted(partitions[topic])) for topic in sorted(partitions)})
    return TargetMemberKey(group_id, member_id), value


def target_epoch(group_id: GroupId, number: int, now_ms: int) -> GroupRecord:
    return TargetEpochKey(group_id), TargetEpochValue(number, now_ms)


def current_assignment(group_id: GroupId, member: ConsumerMember) -> GroupRecord:
    # Sorted: the order of a set of ids differs from process to process.
    assigned, pending = (
        {topic: epochs[topic] for topic in sorted(epochs)} for epochs in (member.assigned, member.pending_revocation)
    )
    value = CurrentMemberValue(member.epoch, member.previous_epoch, member.state, assigned, pending)
    return CurrentMemberKey(group_id, member.member_id), value


def regex(group_id: GroupId, expression: str, resolved: ResolvedRegex) -> GroupRecord:
    value = RegexValue(tuple(sorted(resolved.topics)), resolved.version, resolved.timestamp_ms)
    return RegexKey(group_id, expression), value


def regex_tombstone(group_id: GroupId, expression: str) -> GroupRecord:
    return RegexKey(group_id, expression), None


def member_tombstones(group_id: GroupId, member_id: MemberId) -> list[GroupRecord]:
    """The records that remove a member; its partitions become free with the first."""
    return [
        (CurrentMemberKey(group_id, member_id), None),
        (TargetMemberKey(group_id, member_id), None),
        (MemberKey(group_id, member_id), None),
    ]


def group_tombstones(group: ConsumerGroup, members: Iterable[MemberId] | None = None) -> list[GroupRecord]:
    """The records that remove a group. ``members``: ids to name instead of the group's own (KAFKA-20254)."""
    group_id, ids = group.group_id, list(group.members if members is None else members)
    return [
        *((CurrentMemberKey(group_id, member_id), None) for member_id in ids),
        *((TargetMemberKey(group_id, member_id), None) for member_id in ids),
        (TargetEpochKey(group_id), None),
        *((MemberKey(group_id, member_id), None) for member_id in ids),
        *(regex_tombstone(group_id, expression) for expression in group.regexes),
        (PartitionMetadataKey(group_id), None),
        (ConsumerGroupKey(group_id), None),
    ]
