"""The records of ``__share_group_state``: snapshots of share partitions' states, and updates between them (KIP-932).

They are byte for byte Apache Kafka 4.4's: a version (int16) and that version's fields; the version of a key is the kind
of record; a tombstone is a snapshot's key without a value. Unreadable data decodes to Unknown and never raises, so that
a record of a newer release does not keep a partition from loading. Every value has version 0; an unknown tagged field
is skipped.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from oncelog.base.ids import NO_OFFSET, Offset, TopicId
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal.primitives import Reader, Writer, record_version
from oncelog.records.internal.primitives import Unknown as Unknown

SNAPSHOT_KEY_VERSION: Final = 0
UPDATE_KEY_VERSION: Final = 1
VALUE_VERSION: Final = 0
NO_COUNT: Final = -1
"""A delivery complete count that is not known, as in records before Apache Kafka 4.2 (KIP-1226)."""
_COUNT_TAG: Final = 0
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_SNAPSHOT_START: Final = struct.Struct(">iiiqqq")
_UPDATE_START: Final = struct.Struct(">iiq")
_BATCH: Final = struct.Struct(">qqbh")
_NO_TAGGED_FIELDS: Final = b"\0"


class StateBatch(NamedTuple):
    """Consecutive offsets in one state of delivery; both offsets are inclusive."""

    first_offset: Offset
    last_offset: Offset
    delivery_state: int
    """0 available, 1 acquired (never stored), 2 acknowledged, 3 archiving, 4 archived."""
    delivery_count: int


class SnapshotKey(NamedTuple):
    group: str
    topic_id: TopicId
    partition: int


class UpdateKey(NamedTuple):
    group: str
    topic_id: TopicId
    partition: int


class SnapshotValue(NamedTuple):
    """The whole state of a share partition. Times in milliseconds; a start offset of −1 is not known yet."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int = NO_COUNT
    create_timestamp: int = 0
    write_timestamp: int = 0
    batches: tuple[StateBatch, ...] = ()


class UpdateValue(NamedTuple):
    """A change to the state: batches that are merged into it. A start offset of −1 leaves the present one."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int = NO_OFFSET
    delivery_complete_count: int = NO_COUNT
    batches: tuple[StateBatch, ...] = ()


Key = SnapshotKey | UpdateKey
Value = SnapshotValue | UpdateValue


def encode_key(key: Key) -> bytes:
    """Raises ValueError for a group id of more than 32,767 bytes."""
    writer = Writer()
    writer.int16(SNAPSHOT_KEY_VERSION if isinstance(key, SnapshotKey) else UPDATE_KEY_VERSION)
    writer.string(key.group)
    writer.output += key.topic_id
    writer.int32(key.partition)
    return bytes(writer.output)


def decode_key(data: bytes | None) -> Key | Unknown:
    version = record_version(data)
    if data is None or version is None:
        return Unknown(None, "no key")
    if version not in (SNAPSHOT_KEY_VERSION, UPDATE_KEY_VERSION):
        return Unknown(version, f"key of version {version}")
    reader = Reader(data[2:])
    try:
        fields = reader.string(), TopicId(reader.take(16)), reader.int32()
    except CorruptBatch as error:
        return Unknown(version, str(error))
    return SnapshotKey(*fields) if version == SNAPSHOT_KEY_VERSION else UpdateKey(*fields)


def encode_value(value: Value) -> bytes:
    writer = Writer(flexible=True)
    writer.int16(VALUE_VERSION)
    if isinstance(value, SnapshotValue):
        writer.output += _SNAPSHOT_START.pack(
            value.snapshot_epoch,
            value.state_epoch,
            value.leader_epoch,
            value.start_offset,
            value.create_timestamp,
            value.write_timestamp,
        )
    else:
        writer.output += _UPDATE_START.pack(value.snapshot_epoch, value.leader_epoch, value.start_offset)
    writer.count(len(value.batches))
    writer.output += b"".join([_BATCH.pack(*batch) + _NO_TAGGED_FIELDS for batch in value.batches])
    count = value.delivery_complete_count
    writer.tagged_fields({} if count == NO_COUNT else {_COUNT_TAG: _INT32.pack(count)})
    return bytes(writer.output)


def decode_value(key: Key, data: bytes) -> Value | Unknown:
    """The value of a record with this key; tombstones have none."""
    version = record_version(data)
    if version != VALUE_VERSION:
        return Unknown(version, "no version" if version is None else f"value of version {version}")
    reader = Reader(data[2:], flexible=True)
    try:
        if isinstance(key, UpdateKey):
            epoch, leader_epoch, start = _UPDATE_START.unpack(reader.take(_UPDATE_START.size))
            batches = _read_batches(reader)
            return UpdateValue(epoch, leader_epoch, start, _read_count(reader), batches)
        epoch, state_epoch, leader_epoch, start, created, written = _SNAPSHOT_START.unpack(
            reader.take(_SNAPSHOT_START.size)
        )
        batches = _read_batches(reader)
        return SnapshotValue(epoch, state_epoch, leader_epoch, start, _read_count(reader), created, written, batches)
    except CorruptBatch as error:
        return Unknown(version, str(error))


def _read_batches(reader: Reader) -> tuple[StateBatch, ...]:
    batches = []
    for _ in range(reader.count(_BATCH.size + len(_NO_TAGGED_FIELDS))):
        batches.append(StateBatch(*_BATCH.unpack(reader.take(_BATCH.size))))
        reader.tagged_fields()
    return tuple(batches)


def _read_count(reader: Reader) -> int:
    tagged = reader.tagged_fields().get(_COUNT_TAG)
    if tagged is None:
        return NO_COUNT
    if len(tagged) != _INT32.size:
        raise CorruptBatch(f"delivery complete count of {len(tagged)} bytes")
    return int(_INT32.unpack(tagged)[0])
