"""Encodes committed offsets as records of ``__consumer_offsets``, and decodes them."""

from __future__ import annotations

from oncelog.base.ids import GroupId, LeaderEpoch, Offset, TopicName
from oncelog.core.groups.model import CommittedOffset, Record
from oncelog.records.internal import group_records
from oncelog.records.internal.group_records import OffsetCommitValue


def offset_record(group_id: GroupId, topic: TopicName, partition: int, committed: CommittedOffset) -> Record:
    value = OffsetCommitValue(
        committed.offset,
        committed.leader_epoch,
        committed.metadata,
        committed.commit_timestamp_ms,
        committed.expire_timestamp_ms,
        committed.topic_id,
    )
    key = group_records.encode_offset_commit_key(group_id, topic, partition)
    return key, group_records.encode_offset_commit_value(value)


def offset_tombstone(group_id: GroupId, topic: TopicName, partition: int) -> Record:
    return group_records.encode_offset_commit_key(group_id, topic, partition), None


def committed_of(value: OffsetCommitValue, sequence: int) -> CommittedOffset:
    return CommittedOffset(
        Offset(value.offset),
        LeaderEpoch(value.leader_epoch),
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
        sequence,
    )
