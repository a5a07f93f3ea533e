"""The records of ``__consumer_offsets``: keys and values of committed offsets and of classic groups.

They are byte for byte Apache Kafka 4.3's: a version (int16) and that version's fields; the version of a key is the kind
of record; a tombstone is a key without a value. Unreadable data decodes to Unknown and never raises, so that a record
of a newer release does not keep a partition from loading.

Versions written: offset commit key 1, value 4 with the topic's id as tagged field 0 (1 for a commit with its own
retention); group metadata key 2, value 3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from oncelog.base.ids import NO_LEADER_EPOCH, NO_TOPIC_ID, TopicId
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal import consumer_group_records, share_group_records
from oncelog.records.internal.primitives import Reader, Writer, record_version
from oncelog.records.internal.primitives import Unknown as Unknown

OFFSET_COMMIT_KEY_VERSION: Final = 1
GROUP_METADATA_KEY_VERSION: Final = 2
HIGHEST_VALUE_VERSION: Final = 4
FLEXIBLE_SINCE: Final = 4
GROUP_METADATA_VALUE_VERSION: Final = 3
NO_TIMESTAMP: Final = -1
_TOPIC_ID_TAG: Final = 0
_USUAL_KEY_BYTES: Final = 512
"""Bounds the memory of cached keys."""
_KEY_START: Final = struct.Struct(">hh")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_VALUE_START: Final = struct.Struct(">hqi")
_INT64: Final = struct.Struct(">q")
_END_WITH_TOPIC_ID: Final = struct.Struct(">q3s16s")
_ONE_TOPIC_ID: Final = bytes((1, _TOPIC_ID_TAG, 16))
"""Tagged fields with only the topic's id, of 16 bytes."""
MAX_EPOCH: Final = consumer_group_records.MAX_EPOCH
_NO_TAGGED_FIELDS: Final = 0
_new: Final = tuple.__new__
"""Creates a named tuple without its slower constructor."""
_MIN_MEMBER_BYTES: Final = 9
"""Fewest bytes of a member in any version: five lengths of a byte each and a timeout."""


class OffsetCommitKey(NamedTuple):
    group: str
    topic: str
    partition: int


class GroupMetadataKey(NamedTuple):
    group: str


class OffsetCommitValue(NamedTuple):
    """Timestamps in milliseconds; ``expire_timestamp`` only for a commit with its own retention."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp: int = NO_TIMESTAMP
    expire_timestamp: int = NO_TIMESTAMP
    topic_id: TopicId = NO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """A persisted member of a classic group. Timeouts in milliseconds; rebalance −1 in values of version 0."""

    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int = -1
    subscription: bytes = b""
    assignment: bytes = b""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupMetadataValue:
    """A classic group at the end of a rebalance. Empty groups have no protocol, leader or members."""

    protocol_type: str
    generation: int
    protocol: str | None = None
    leader: str | None = None
    current_state_timestamp: int = NO_TIMESTAMP
    members: tuple[MemberMetadata, ...] = ()


Key = OffsetCommitKey | GroupMetadataKey | consumer_group_records.Key | share_group_records.ShareKey | Unknown


def decode_key(data: bytes | None) -> Key:
    """The key of a record of ``__consumer_offsets``; Unknown for kinds of other group protocols."""
    if data is not None and 10 <= len(data) <= _USUAL_KEY_BYTES:
        names = _usual_names(data[:-4])
        if names is not None:
            return _new(OffsetCommitKey, (*names, _INT32.unpack_from(data, len(data) - 4)[0]))
    return decode_any_key(data)


def decode_any_key(data: bytes | None) -> Key:
    version = record_version(data)
    if data is None or version is None:
        return Unknown(None, "no key")
    reader = Reader(data[2:])
    try:
        if version in (0, OFFSET_COMMIT_KEY_VERSION):
            return OffsetCommitKey(reader.string(), reader.string(), reader.int32())
        if version == GROUP_METADATA_KEY_VERSION:
            return GroupMetadataKey(reader.string())
        if version in consumer_group_records.KEY_TYPES:
            return consumer_group_records.decode_key(version, data[2:])
        if version in share_group_records.KEY_TYPES:
            return share_group_records.decode_key(version, data[2:])
    except CorruptBatch as error:
        return Unknown(version, str(error))
    return Unknown(version, f"key of version {version}")


# Nearly all of the million records loaded at a start are offsets in the versions written here. The fast path
# (``_usual_…``) reads them in a few struct calls; it returns the result of the general path (``decode_any_…``), or None
# for anything unusual.
@lru_cache(maxsize=4096)
def _usual_names(start: bytes) -> tuple[str, str] | None:
    """Group and topic of an offset commit key of version 1 without its partition; None for the general path."""
    # Cached: a topic's partitions share the names, and then the strings, too.
    version, group_size = _KEY_START.unpack_from(start)
    group_end = 4 + group_size
    topic_size = len(start) - group_end - 2
    if version != OFFSET_COMMIT_KEY_VERSION or group_size < 0 or topic_size < 0:
        return None
    if _INT16.unpack_from(start, group_end)[0] != topic_size:
        return None
    try:
        return start[4:group_end].decode(), start[group_end + 2 :].decode()
    except UnicodeDecodeError:
        return None


def encode_offset_commit_key(group: str, topic: str, partition: int) -> bytes:
    writer = Writer()
    writer.int16(OFFSET_COMMIT_KEY_VERSION)
    writer.string(group)
    writer.string(topic)
    writer.int32(partition)
    return bytes(writer.output)


def encode_group_metadata_key(group: str) -> bytes:
    writer = Writer()
    writer.int16(GROUP_METADATA_KEY_VERSION)
    writer.string(group)
    return bytes(writer.output)


def decode_offset_commit_value(data: bytes) -> OffsetCommitValue | Unknown:
    """A committed offset, versions 0 to 4."""
    return _usual_offset_commit_value(data) or decode_any_offset_commit_value(data)


def decode_any_offset_commit_value(data: bytes) -> OffsetCommitValue | Unknown:
    version = record_version(data)
    if version is None or not 0 <= version <= HIGHEST_VALUE_VERSION:
        return Unknown(version, f"offset commit value of version {version}")
    reader = Reader(data[2:], flexible=version >= FLEXIBLE_SINCE)
    try:
        offset = reader.int64()
        leader_epoch = reader.int32() if version >= 3 else NO_LEADER_EPOCH
        metadata = reader.string()
        commit_timestamp = reader.int64()
        expire_timestamp = reader.int64() if version == 1 else NO_TIMESTAMP
        topic_id = reader.tagged_fields().get(_TOPIC_ID_TAG, NO_TOPIC_ID)
    except CorruptBatch as error:
        return Unknown(version, str(error))
    if len(topic_id) != 16:
        return Unknown(version, f"topic id of {len(topic_id)} bytes")
    return OffsetCommitValue(offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, TopicId(topic_id))


def _usual_offset_commit_value(data: bytes) -> OffsetCommitValue | None:
    """A committed offset in version 3 or 4; None for the general path."""
    size = len(data)
    if size < 24:
        return None
    version, offset, leader_epoch = _VALUE_START.unpack_from(data)
    if version == FLEXIBLE_SINCE:
        start, end = 15, 14 + data[14]
        if not start <= end <= 141:  # null, or a length of more than one byte
            return None
    elif version == 3:
        start, end = 16, 16 + _INT16.unpack_from(data, 14)[0]
        if start > end:
            return None
    else:
        return None
    topic_id: bytes = NO_TOPIC_ID
    if size - end == 27 and version == FLEXIBLE_SINCE:
        commit_timestamp, tags, topic_id = _END_WITH_TOPIC_ID.unpack_from(data, end)
        if tags != _ONE_TOPIC_ID:
            return None
    elif size - end == (9 if version == FLEXIBLE_SINCE else 8):
        (commit_timestamp,) = _INT64.unpack_from(data, end)
        if version == FLEXIBLE_SINCE and data[-1] != _NO_TAGGED_FIELDS:
            return None
    else:
        return None
    try:
        metadata = data[start:end].decode() if end > start else ""
    except UnicodeDecodeError:
        return None
    return _new(OffsetCommitValue, (offset, leader_epoch, metadata, commit_timestamp, NO_TIMESTAMP, topic_id))


def encode_offset_commit_value(value: OffsetCommitValue, version: int | None = None) -> bytes:
    """Encode in Apache Kafka 4.3's choice of version, or the given one; fields that it lacks are dropped."""
    if version is None:
        version = HIGHEST_VALUE_VERSION if value.expire_timestamp == NO_TIMESTAMP else 1
    writer = Writer(flexible=version >= FLEXIBLE_SINCE)
    writer.int16(version)
    writer.int64(value.offset)
    if version >= 3:
        writer.int32(value.leader_epoch)
    writer.string(value.metadata)
    writer.int64(value.commit_timestamp)
    if version == 1:
        writer.int64(value.expire_timestamp)
    writer.tagged_fields({} if value.topic_id == NO_TOPIC_ID else {_TOPIC_ID_TAG: value.topic_id})
    return bytes(writer.output)


def decode_group_metadata_value(data: bytes) -> GroupMetadataValue | Unknown:
    """A classic group, versions 0 to 4."""
    version = record_version(data)
    if version is None or not 0 <= version <= HIGHEST_VALUE_VERSION:
        return Unknown(version, f"group metadata value of version {version}")
    reader = Reader(data[2:], flexible=version >= FLEXIBLE_SINCE)
    try:
        value = GroupMetadataValue(
            protocol_type=reader.string(),
            generation=reader.int32(),
            protocol=reader.nullable_string(),
            leader=reader.nullable_string(),
            current_state_timestamp=reader.int64() if version >= 2 else NO_TIMESTAMP,
            members=tuple(_read_member(reader, version) for _ in range(reader.count(_MIN_MEMBER_BYTES))),
        )
        reader.tagged_fields()
    except CorruptBatch as error:
        return Unknown(version, str(error))
    if value.generation > MAX_EPOCH:
        return Unknown(version, f"generation {value.generation} is greater than {MAX_EPOCH}")
    return value


def encode_group_metadata_value(value: GroupMetadataValue, version: int = GROUP_METADATA_VALUE_VERSION) -> bytes:
    """Encode in the given version; fields that it lacks are dropped."""
    writer = Writer(flexible=version >= FLEXIBLE_SINCE)
    writer.int16(version)
    writer.string(value.protocol_type)
    writer.int32(value.generation)
    writer.string(value.protocol)
    writer.string(value.leader)
    if version >= 2:
        writer.int64(value.current_state_timestamp)
    writer.count(len(value.members))
    for member in value.members:
        _write_member(writer, member, version)
    writer.tagged_fields()
    return bytes(writer.output)


def _read_member(reader: Reader, version: int) -> MemberMetadata:
    member_id = reader.string()
    group_instance_id = reader.nullable_string() if version >= 3 else None
    client_id = reader.string()
    client_host = reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    subscription = reader.bytes_()
    assignment = reader.bytes_()
    reader.tagged_fields()
    return MemberMetadata(
        member_id,
        client_id,
        client_host,
        session_timeout_ms,
        rebalance_timeout_ms,
        subscription,
        assignment,
        group_instance_id,
    )


def _write_member(writer: Writer, member: MemberMetadata, version: int) -> None:
    writer.string(member.member_id)
    if version >= 3:
        writer.string(member.group_instance_id)
    writer.string(member.client_id)
    writer.string(member.client_host)
    if version >= 1:
        writer.int32(member.rebalance_timeout_ms)
    writer.int32(member.session_timeout_ms)
    writer.bytes_(member.subscription)
    writer.bytes_(member.assignment)
    writer.tagged_fields()
