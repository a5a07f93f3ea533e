"""D11 to D13: a group in its coordinator's log is whole, and its partitions and epoch fit its members."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from oncelog.base.ids import CONSUMER_OFFSETS, TopicPartition
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal.consumer_group_records import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    CurrentMemberKey,
    CurrentMemberValue,
    Key,
    MemberKey,
    RegexKey,
    TargetMemberKey,
    decode_value,
)
from oncelog.records.internal.consumer_protocol import decode_assignment
from oncelog.records.internal.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    Unknown,
    decode_group_metadata_value,
    decode_key,
)
from oncelog.records.internal.share_group_records import ShareKey
from oncelog.sim.checkers.disk.logs import Finding
from oncelog.sim.checkers.disk.scan import ScannedLog

REMAINS: Final = "D11 remains of a group"
SHARED: Final = "D12 partition of two members on the disk"
RISEN: Final = "D13 epoch of a group rose for nothing"
GroupKey = GroupMetadataKey | Key
GroupRecord = tuple[GroupKey, bytes]


def groups(logs: Mapping[TopicPartition, ScannedLog]) -> Iterator[Finding]:
    # The last record of each key counts, as after any compaction.
    for partition, log in sorted(logs.items()):
        if partition.topic != CONSUMER_OFFSETS or log.unsound is not None or log.interrupted:
            continue
        yield from ((RISEN, f"{partition}: {detail}") for detail in _rises(log))
        for group, records in sorted(_last_records(log).items()):
            yield from ((REMAINS, f"{partition}: {group}: {detail}") for detail in _remains(records))
            yield from ((SHARED, f"{partition}: {group}: {detail}") for detail in _shared(records))


def _last_records(log: ScannedLog) -> dict[str, list[GroupRecord]]:
    # By group, without tombstones and offsets. Decoded keys of two kinds may be equal as tuples.
    last: dict[bytes, bytes | None] = {}
    for batch in log.batches:
        last.update((record.key, record.value) for record in batch.records if record.key is not None)
    by_group: dict[str, list[GroupRecord]] = {}
    for data, value in last.items():
        key = decode_key(data)
        # Members of a share group have partitions in common, and an altered group may have no epoch.
        if value is not None and not isinstance(key, OffsetCommitKey | Unknown | ShareKey):
            by_group.setdefault(key.group, []).append((key, value))
    return by_group


def _remains(records: Sequence[GroupRecord]) -> Iterator[str]:
    keys = [key for key, _ in records]
    others = [key for key in keys if not isinstance(key, GroupMetadataKey)]
    if others and len(others) < len(keys):
        yield f"a classic group with {others[0]} and {len(others) - 1} more"
    elif others and not any(isinstance(key, ConsumerGroupKey) for key in keys):
        yield f"{others[0]} without a group"
    members = {key.member for key in keys if isinstance(key, MemberKey)}
    for key in keys:
        if isinstance(key, CurrentMemberKey | TargetMemberKey) and key.member not in members:
            yield f"{key} without a member"


def _rises(log: ScannedLog) -> Iterator[str]:
    # A decision is one batch: a batch that raises an epoch has its reason, too, unless that was compacted away.
    epochs: dict[str, ConsumerGroupValue] = {}
    for batch in log.batches:
        changed: set[str] = set()
        raised: dict[str, ConsumerGroupValue] = {}
        for record in batch.records:
            key = None if record.key is None else decode_key(record.key)
            if isinstance(key, MemberKey | RegexKey | GroupMetadataKey):
                changed.add(key.group)
            elif isinstance(key, ConsumerGroupKey) and record.value is not None:
                value = decode_value(key, record.value)
                if isinstance(value, ConsumerGroupValue):
                    raised[key.group] = value
        for group, (epoch, metadata_hash) in raised.items():
            is_next = epochs.get(group) == (epoch - 1, metadata_hash)
            if is_next and group not in changed and batch.header.record_count > batch.header.last_offset_delta:
                yield f"{group}: to {epoch} at offset {batch.header.base_offset}"
        epochs |= raised


def _shared(records: Sequence[GroupRecord]) -> Iterator[str]:
    owners: dict[tuple[object, int], str] = {}
    for key, value in records:
        for member, topic, partition in _owned(key, value):
            owner = owners.setdefault((topic, partition), member)
            if owner != member:
                yield f"{topic!r}-{partition} of {owner} and {member}"


def _owned(key: GroupKey, value: bytes) -> Iterator[tuple[str, object, int]]:
    # Member, topic, and partition.
    if isinstance(key, CurrentMemberKey):
        decoded = decode_value(key, value)
        if isinstance(decoded, CurrentMemberValue):
            for assigned in (decoded.assigned, decoded.pending_revocation):
                yield from ((key.member, topic, partition) for topic in assigned for partition in assigned[topic])
    elif isinstance(key, GroupMetadataKey):
        group = decode_group_metadata_value(value)
        for member in group.members if isinstance(group, GroupMetadataValue) else ():
            try:
                assignment = decode_assignment(member.assignment).partitions if member.assignment else ()
            except CorruptBatch:
                continue  # another protocol than that of consumers
            yield from ((member.member_id, topic, partition) for topic, partition in assignment)
