"""The records of ``__consumer_offsets`` for share groups (KIP-932): keys 10 to 15.

The rule of ``consumer_group_records`` holds here: byte for byte Apache Kafka 4.4's, and what cannot be read raises
CorruptBatch. Keys name their kind by their version; every value has version 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from oncelog.base.ids import TopicId
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal.consumer_group_records import MAX_EPOCH, VALUE_VERSION
from oncelog.records.internal.group_arrays import (
    LEAST_TOPIC_BYTES,
    decode_strings,
    encode_strings,
    int64_tag,
    read_int32s,
    read_partitions,
    read_strings,
    tagged_int64,
    write_int32s,
    write_partitions,
    write_strings,
)
from oncelog.records.internal.primitives import Reader, Writer

_TIMESTAMP_TAG: Final = 0


class ShareMemberKey(NamedTuple):
    """The key of a member's subscription."""

    group: str
    member: str


class ShareGroupKey(NamedTuple):
    """The key of a group's epoch and metadata hash."""

    group: str


class ShareTargetEpochKey(NamedTuple):
    """The key of the epoch of a group's target assignment."""

    group: str


class ShareTargetMemberKey(NamedTuple):
    """The key of a member's share of the target assignment."""

    group: str
    member: str


class ShareCurrentMemberKey(NamedTuple):
    """The key of a member's current assignment."""

    group: str
    member: str


class ShareStateTopicsKey(NamedTuple):
    """The key of the partitions whose share state a group has, or is getting (ShareGroupStatePartitionMetadata)."""

    group: str


ShareKey = (
    ShareMemberKey
    | ShareGroupKey
    | ShareTargetEpochKey
    | ShareTargetMemberKey
    | ShareCurrentMemberKey
    | ShareStateTopicsKey
)
KEY_TYPES: Final[Mapping[int, type[ShareKey]]] = {
    10: ShareMemberKey,
    11: ShareGroupKey,
    12: ShareTargetEpochKey,
    13: ShareTargetMemberKey,
    14: ShareCurrentMemberKey,
    15: ShareStateTopicsKey,
}
KEY_VERSIONS: Final = {key_type: version for version, key_type in KEY_TYPES.items()}


class ShareMemberValue(NamedTuple):
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]


class ShareGroupValue(NamedTuple):
    """A group's epoch, and the hash of the topics it subscribes to."""

    epoch: int
    metadata_hash: int


class ShareTargetEpochValue(NamedTuple):
    """The epoch of the target assignment, and when it was computed (0: not known)."""

    epoch: int
    timestamp_ms: int = 0


class ShareTargetMemberValue(NamedTuple):
    partitions: Mapping[TopicId, tuple[int, ...]]


class ShareCurrentMemberValue(NamedTuple):
    epoch: int
    previous_epoch: int
    state: int
    assigned: Mapping[TopicId, tuple[int, ...]]


class NamedPartitions(NamedTuple):
    """Partitions of a topic, with the name that it has."""

    name: str
    partitions: tuple[int, ...]


class ShareStateTopicsValue(NamedTuple):
    initializing: Mapping[TopicId, NamedPartitions]
    initialized: Mapping[TopicId, NamedPartitions]
    deleting: Mapping[TopicId, str]
    """Names by id."""


ShareValue = (
    ShareMemberValue
    | ShareGroupValue
    | ShareTargetEpochValue
    | ShareTargetMemberValue
    | ShareCurrentMemberValue
    | ShareStateTopicsValue
)


def encode_key(key: ShareKey) -> bytes:
    return encode_strings(KEY_VERSIONS[type(key)], key)


def decode_key(version: int, data: bytes) -> ShareKey:
    """The key after its version. Raises CorruptBatch."""
    key_type = KEY_TYPES[version]
    return key_type(*decode_strings(len(key_type._fields), data))


def encode_value(value: ShareValue) -> bytes:
    """A value of version 0."""
    writer = Writer(flexible=True)
    writer.int16(VALUE_VERSION)
    tagged: dict[int, bytes] = {}
    match value:
        case ShareMemberValue():
            writer.string(value.rack_id)
            writer.string(value.client_id)
            writer.string(value.client_host)
            write_strings(writer, value.topics)
        case ShareGroupValue(epoch, metadata_hash):
            writer.int32(epoch)
            writer.int64(metadata_hash)
        case ShareTargetEpochValue(epoch, timestamp_ms):
            writer.int32(epoch)
            tagged = int64_tag(_TIMESTAMP_TAG, timestamp_ms)
        case ShareTargetMemberValue(partitions):
            write_partitions(writer, partitions)
        case ShareCurrentMemberValue():
            writer.int32(value.epoch)
            writer.int32(value.previous_epoch)
            writer.output.append(value.state)
            write_partitions(writer, value.assigned)
        case ShareStateTopicsValue():
            _write_named(writer, value.initializing)
            _write_named(writer, value.initialized)
            writer.count(len(value.deleting))
            for topic, name in value.deleting.items():
                writer.output += topic
                writer.string(name)
                writer.tagged_fields()
    writer.tagged_fields(tagged)
    return bytes(writer.output)


def decode_value(key: ShareKey, data: bytes) -> ShareValue:
    """The value that belongs to a key. Raises CorruptBatch."""
    reader = Reader(data, flexible=True)
    if (version := reader.int16()) != VALUE_VERSION:
        raise CorruptBatch(f"{type(key).__name__} with a value of version {version}")
    match key:
        case ShareMemberKey():
            rack_id = reader.nullable_string()
            return ShareMemberValue(rack_id, reader.string(), reader.string(), read_strings(reader))
        case ShareGroupKey():
            if (epoch := reader.int32()) > MAX_EPOCH:
                raise CorruptBatch(f"group epoch {epoch} is greater than {MAX_EPOCH}")
            return ShareGroupValue(epoch, reader.int64())
        case ShareTargetEpochKey():
            return ShareTargetEpochValue(reader.int32(), tagged_int64(reader, _TIMESTAMP_TAG))
        case ShareTargetMemberKey():
            return ShareTargetMemberValue(read_partitions(reader))
        case ShareCurrentMemberKey():
            epoch, previous_epoch, state = reader.int32(), reader.int32(), reader.take(1)[0]
            return ShareCurrentMemberValue(epoch, previous_epoch, state, read_partitions(reader))
        case ShareStateTopicsKey():
            initializing, initialized = _read_named(reader), _read_named(reader)
            deleting = {}
            for _ in range(reader.count(LEAST_TOPIC_BYTES)):
                topic = TopicId(reader.take(16))
                deleting[topic] = reader.string()
                reader.tagged_fields()
            return ShareStateTopicsValue(initializing, initialized, deleting)


def _write_named(writer: Writer, topics: Mapping[TopicId, NamedPartitions]) -> None:
    writer.count(len(topics))
    for topic, (name, partitions) in topics.items():
        writer.output += topic
        writer.string(name)
        write_int32s(writer, partitions)
        writer.tagged_fields()


def _read_named(reader: Reader) -> dict[TopicId, NamedPartitions]:
    topics = {}
    for _ in range(reader.count(LEAST_TOPIC_BYTES)):
        topic = TopicId(reader.take(16))
        topics[topic] = NamedPartitions(reader.string(), read_int32s(reader))
        reader.tagged_fields()
    return topics
