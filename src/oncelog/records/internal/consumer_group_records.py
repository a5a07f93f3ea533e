"""The records of ``__consumer_offsets`` for consumer groups of the new protocol (KIP-848): keys 3 to 8 and 16.

The rule: byte for byte Apache Kafka 4.3's, so that its brokers and tools read ours and we read theirs. Keys name their
kind by their version; every value has version 0. A key or value that cannot be read raises CorruptBatch; the caller
(``group_records``) turns that into Unknown.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from oncelog.base.ids import TopicId
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal.group_arrays import (
    COUNT_AT,
    FEW,
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

VALUE_VERSION: Final = 0
MAX_EPOCH: Final = 2**31 - 2**24
"""The greatest epoch or generation of a group that is read. No group gets so far, and a damaged one must be able to
rise: it is written in 32 bits.
"""
_METADATA_HASH_TAG: Final = 0
_TIMESTAMP_TAG: Final = 0
_CLASSIC_TAG: Final = 0
_EPOCHS_TAG: Final = 0
_PRESENT: Final = 1
_ABSENT: Final = b"\0"
"""Apache Kafka writes the tagged field also where it is null."""
_NO_METADATA_HASH: Final = 0
# As ``group_arrays`` reads and writes topics without epochs.
_ASSIGNMENTS: Final = [struct.Struct(f">16sB{count}iBBBB{count}i") for count in range(FEW + 1)]
# The bytes before few epochs: one tagged field, its tag and size, and the number of epochs.
_EPOCHS_TAGS: Final = [(1, _EPOCHS_TAG, 1 + 4 * count, count + 1) for count in range(FEW + 1)]


class ConsumerGroupKey(NamedTuple):
    """The key of a group's epoch and metadata hash."""

    group: str


class PartitionMetadataKey(NamedTuple):
    """The key of topic metadata as brokers before 4.1 stored it; only its tombstone is written."""

    group: str


class MemberKey(NamedTuple):
    """The key of a member's subscription."""

    group: str
    member: str


class TargetEpochKey(NamedTuple):
    """The key of the epoch of a group's target assignment."""

    group: str


class TargetMemberKey(NamedTuple):
    """The key of a member's share of the target assignment."""

    group: str
    member: str


class CurrentMemberKey(NamedTuple):
    """The key of a member's current assignment."""

    group: str
    member: str


class RegexKey(NamedTuple):
    """The key of the topics that a regular expression has resolved to."""

    group: str
    regex: str


Key = (
    ConsumerGroupKey | PartitionMetadataKey | MemberKey | TargetEpochKey | TargetMemberKey | CurrentMemberKey | RegexKey
)
KEY_TYPES: Final[Mapping[int, type[Key]]] = {
    3: ConsumerGroupKey,
    4: PartitionMetadataKey,
    5: MemberKey,
    6: TargetEpochKey,
    7: TargetMemberKey,
    8: CurrentMemberKey,
    16: RegexKey,
}
KEY_VERSIONS: Final = {key_type: version for version, key_type in KEY_TYPES.items()}


class ConsumerGroupValue(NamedTuple):
    """A group's epoch, and the hash of the topics it subscribes to (0: not computed yet)."""

    epoch: int
    metadata_hash: int = _NO_METADATA_HASH


class ClassicProtocolValue(NamedTuple):
    """A strategy that a classic member offers."""

    name: str
    metadata: bytes


class ClassicMemberValue(NamedTuple):
    """The fields that only members of the classic protocol have."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocolValue, ...]


class MemberValue(NamedTuple):
    """A member's subscription."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicMemberValue | None = None


class TargetEpochValue(NamedTuple):
    """The epoch of the target assignment, and when it was computed (0: not known)."""

    epoch: int
    timestamp_ms: int = 0


class TargetMemberValue(NamedTuple):
    """A member's share of the target assignment."""

    partitions: Mapping[TopicId, tuple[int, ...]]


class CurrentMemberValue(NamedTuple):
    """A member's current assignment; each partition with the epoch in which the member got it (KIP-1251)."""

    epoch: int
    previous_epoch: int
    state: int
    assigned: Mapping[TopicId, Mapping[int, int]]
    pending_revocation: Mapping[TopicId, Mapping[int, int]]


class RegexValue(NamedTuple):
    """The topics of a regular expression, by the metadata of a version at a time."""

    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


Value = ConsumerGroupValue | MemberValue | TargetEpochValue | TargetMemberValue | CurrentMemberValue | RegexValue


def encode_key(key: Key) -> bytes:
    return encode_strings(KEY_VERSIONS[type(key)], key)


def decode_key(version: int, data: bytes) -> Key:
    """The key after its version. Raises CorruptBatch."""
    key_type = KEY_TYPES[version]
    return key_type(*decode_strings(len(key_type._fields), data))


def encode_value(value: Value) -> bytes:
    """A value of version 0."""
    writer = Writer(flexible=True)
    writer.int16(VALUE_VERSION)
    match value:
        case ConsumerGroupValue(epoch, metadata_hash):
            writer.int32(epoch)
            writer.tagged_fields(int64_tag(_METADATA_HASH_TAG, metadata_hash))
        case MemberValue():
            _write_member(writer, value)
        case TargetEpochValue(epoch, timestamp_ms):
            writer.int32(epoch)
            writer.tagged_fields(int64_tag(_TIMESTAMP_TAG, timestamp_ms))
        case TargetMemberValue(partitions):
            write_partitions(writer, partitions)
            writer.tagged_fields()
        case CurrentMemberValue():
            writer.int32(value.epoch)
            writer.int32(value.previous_epoch)
            writer.output.append(value.state)
            _write_epochs(writer, value.assigned)
            _write_epochs(writer, value.pending_revocation)
            writer.tagged_fields()
        case RegexValue():
            write_strings(writer, value.topics)
            writer.int64(value.version)
            writer.int64(value.timestamp_ms)
            writer.tagged_fields()
    return bytes(writer.output)


def decode_value(key: Key, data: bytes) -> Value | None:
    """The value that belongs to a key; None for the topic metadata of old brokers. Raises CorruptBatch."""
    reader = Reader(data, flexible=True)
    if (version := reader.int16()) != VALUE_VERSION:
        raise CorruptBatch(f"{type(key).__name__} with a value of version {version}")
    match key:
        case ConsumerGroupKey():
            if (epoch := reader.int32()) > MAX_EPOCH:
                raise CorruptBatch(f"group epoch {epoch} is greater than {MAX_EPOCH}")
            return ConsumerGroupValue(epoch, tagged_int64(reader, _METADATA_HASH_TAG))
        case MemberKey():
            return _read_member(reader)
        case TargetEpochKey():
            return TargetEpochValue(reader.int32(), tagged_int64(reader, _TIMESTAMP_TAG))
        case TargetMemberKey():
            return TargetMemberValue(read_partitions(reader))
        case CurrentMemberKey():
            epoch, previous_epoch, state = reader.int32(), reader.int32(), reader.take(1)[0]
            # Brokers before 4.3 wrote no epochs of partitions: they meant that of the member.
            assigned, pending = (_read_epochs(reader, max(epoch, 0)) for _ in range(2))
            return CurrentMemberValue(epoch, previous_epoch, state, assigned, pending)
        case RegexKey():
            return RegexValue(read_strings(reader), reader.int64(), reader.int64())
        case PartitionMetadataKey():
            return None


def _write_member(writer: Writer, value: MemberValue) -> None:
    writer.string(value.instance_id)
    writer.string(value.rack_id)
    writer.string(value.client_id)
    writer.string(value.client_host)
    write_strings(writer, value.topics)
    writer.string(value.regex)
    writer.int32(value.rebalance_timeout_ms)
    writer.string(value.assignor)
    if value.classic is None:
        writer.tagged_fields({_CLASSIC_TAG: _ABSENT})
        return
    classic = Writer(flexible=True)
    classic.output.append(_PRESENT)
    classic.int32(value.classic.session_timeout_ms)
    classic.count(len(value.classic.protocols))
    for protocol in value.classic.protocols:
        classic.string(protocol.name)
        classic.bytes_(protocol.metadata)
        classic.tagged_fields()
    classic.tagged_fields()
    writer.tagged_fields({_CLASSIC_TAG: bytes(classic.output)})


def _read_member(reader: Reader) -> MemberValue:
    value = MemberValue(
        instance_id=reader.nullable_string(),
        rack_id=reader.nullable_string(),
        client_id=reader.string(),
        client_host=reader.string(),
        topics=read_strings(reader),
        regex=reader.nullable_string(),
        rebalance_timeout_ms=reader.int32(),
        assignor=reader.nullable_string(),
    )
    tagged = reader.tagged_fields().get(_CLASSIC_TAG)
    if not tagged or tagged[0] != _PRESENT:
        return value
    classic = Reader(tagged[1:], flexible=True)
    session_timeout_ms = classic.int32()
    protocols = []
    for _ in range(classic.count(3)):
        protocols.append(ClassicProtocolValue(classic.string(), classic.bytes_()))
        classic.tagged_fields()
    return value._replace(classic=ClassicMemberValue(session_timeout_ms, tuple(protocols)))


def _write_epochs(writer: Writer, assignment: Mapping[TopicId, Mapping[int, int]]) -> None:
    writer.count(len(assignment))
    for topic, epochs in assignment.items():
        if (count := len(epochs)) <= FEW:
            layout, tag = _ASSIGNMENTS[count], _EPOCHS_TAGS[count]
            writer.output += layout.pack(topic, count + 1, *epochs, *tag, *epochs.values())
            continue
        writer.output += topic
        write_int32s(writer, tuple(epochs))
        tagged = Writer(flexible=True)
        write_int32s(tagged, tuple(epochs.values()))
        writer.tagged_fields({_EPOCHS_TAG: bytes(tagged.output)})


def _read_epochs(reader: Reader, default: int) -> dict[TopicId, dict[int, int]]:
    assignment: dict[TopicId, dict[int, int]] = {}
    for _ in range(reader.count(LEAST_TOPIC_BYTES)):
        if few := reader.ahead(_ASSIGNMENTS, COUNT_AT):
            count = few[1] - 1
            if few[count + 2 : count + 6] == _EPOCHS_TAGS[count]:
                reader.take(_ASSIGNMENTS[count].size)
                assignment[few[0]] = dict(zip(few[2 : count + 2], few[count + 6 :], strict=True))
                continue
        topic, partitions = TopicId(reader.take(16)), read_int32s(reader)
        tagged = Reader(reader.tagged_fields().get(_EPOCHS_TAG, b"\x00"), flexible=True)
        epochs = read_int32s(tagged) if tagged.left > 1 else ()
        if len(epochs) != len(partitions):
            epochs = (default,) * len(partitions)
        assignment[topic] = dict(zip(partitions, epochs, strict=True))
    return assignment
