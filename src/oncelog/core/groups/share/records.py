"""Members and groups of the share protocol as records of ``__consumer_offsets``, in Apache Kafka's order."""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.base.ids import GroupId, MemberId, TopicId
from oncelog.core.groups.model import Record
from oncelog.core.groups.modern.members import Partitions
from oncelog.core.groups.share.group import ShareGroup
from oncelog.core.groups.share.member import ShareMember
from oncelog.core.groups.share.state_topics import UNKNOWN_TOPIC, NameOf, StateTopics, Topics
from oncelog.records.internal import share_group_records
from oncelog.records.internal.share_group_records import (
    NamedPartitions,
    ShareCurrentMemberKey,
    ShareCurrentMemberValue,
    ShareGroupKey,
    ShareGroupValue,
    ShareKey,
    ShareMemberKey,
    ShareMemberValue,
    ShareStateTopicsKey,
    ShareStateTopicsValue,
    ShareTargetEpochKey,
    ShareTargetEpochValue,
    ShareTargetMemberKey,
    ShareTargetMemberValue,
    ShareValue,
)

ShareRecord = tuple[ShareKey, ShareValue | None]


def encode(record: ShareRecord) -> Record:
    """A record's key and value in bytes; None is a tombstone."""
    key, value = record
    return share_group_records.encode_key(key), None if value is None else share_group_records.encode_value(value)


def subscription(group_id: GroupId, member: ShareMember) -> ShareRecord:
    value = ShareMemberValue(member.rack_id, member.client_id, member.client_host, tuple(sorted(member.topics)))
    return ShareMemberKey(group_id, member.member_id), value


def epoch(group_id: GroupId, number: int, metadata_hash: int) -> ShareRecord:
    return ShareGroupKey(group_id), ShareGroupValue(number, metadata_hash)


def target(group_id: GroupId, member_id: MemberId, partitions: Partitions) -> ShareRecord:
    return ShareTargetMemberKey(group_id, member_id), ShareTargetMemberValue(_sorted(partitions))


def target_epoch(group_id: GroupId, number: int, now_ms: int) -> ShareRecord:
    return ShareTargetEpochKey(group_id), ShareTargetEpochValue(number, now_ms)


def current_assignment(group_id: GroupId, member: ShareMember) -> ShareRecord:
    value = ShareCurrentMemberValue(member.epoch, member.previous_epoch, member.state, _sorted(member.assigned))
    return ShareCurrentMemberKey(group_id, member.member_id), value


def state_topics(group_id: GroupId, state: StateTopics, name_of: NameOf) -> ShareRecord:
    deleting = {topic: name_of(topic) or UNKNOWN_TOPIC for topic in sorted(state.deleting)}
    value = ShareStateTopicsValue(_named(state.initializing), _named(state.initialized), deleting)
    return ShareStateTopicsKey(group_id), value


def member_tombstones(group_id: GroupId, member_id: MemberId) -> list[ShareRecord]:
    return [
        (ShareCurrentMemberKey(group_id, member_id), None),
        (ShareTargetMemberKey(group_id, member_id), None),
        (ShareMemberKey(group_id, member_id), None),
    ]


def group_tombstones(group: ShareGroup) -> list[ShareRecord]:
    """The records that remove a group without members. A load may have left targets of members that are gone."""
    group_id = group.group_id
    return [
        *((ShareTargetMemberKey(group_id, member_id), None) for member_id in group.target),
        (ShareTargetEpochKey(group_id), None),
        (ShareStateTopicsKey(group_id), None),
        (ShareGroupKey(group_id), None),
    ]


def _sorted(partitions: Partitions) -> dict[TopicId, tuple[int, ...]]:
    # The order of a set of ids differs from process to process.
    return {topic: tuple(sorted(partitions[topic])) for topic in sorted(partitions)}


def _named(topics: Topics) -> Mapping[TopicId, NamedPartitions]:
    return {
        topic: NamedPartitions(topics[topic].name, tuple(sorted(topics[topic].partitions))) for topic in sorted(topics)
    }
