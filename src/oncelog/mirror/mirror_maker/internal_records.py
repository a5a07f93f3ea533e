"""Records of MirrorMaker 2's internal topics: offset syncs, checkpoints and heartbeats (KIP-382).

Keys and values are structs of Kafka's fixed-width types. Values of checkpoints and heartbeats begin with a version;
offset syncs have none. Fields that a later version appends are ignored.
"""

from __future__ import annotations

from typing import NamedTuple

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal.primitives import Reader


class OffsetSync(NamedTuple):
    """The record at ``upstream`` of a source partition was written at ``downstream`` of its copy."""

    partition: TopicPartition
    upstream: int
    downstream: int


class Checkpoint(NamedTuple):
    """A group that stood at ``upstream`` continues at ``downstream`` of the copy's ``partition``."""

    group: str
    partition: TopicPartition
    upstream: int
    downstream: int


class Heartbeat(NamedTuple):
    source: str
    target: str
    at_ms: int


def parse_offset_sync(key: bytes | None, value: bytes | None) -> OffsetSync | None:
    """None for a tombstone. Raises CorruptBatch."""
    if key is None or value is None:
        return None
    at, offsets = Reader(key), Reader(value)
    partition = TopicPartition(TopicName(at.string()), at.int32())
    return OffsetSync(partition, offsets.int64(), offsets.int64())


def parse_checkpoint(key: bytes | None, value: bytes | None) -> Checkpoint | None:
    """None for a tombstone. Raises CorruptBatch."""
    if key is None or value is None:
        return None
    at, offsets = Reader(key), Reader(value)
    group = at.string()
    partition = TopicPartition(TopicName(at.string()), at.int32())
    _check_version(offsets, "checkpoint")
    return Checkpoint(group, partition, offsets.int64(), offsets.int64())


def parse_heartbeat(key: bytes | None, value: bytes | None) -> Heartbeat | None:
    """None for a tombstone. Raises CorruptBatch."""
    if key is None or value is None:
        return None
    at, fields = Reader(key), Reader(value)
    source, target = at.string(), at.string()
    _check_version(fields, "heartbeat")
    return Heartbeat(source, target, fields.int64())


def _check_version(fields: Reader, kind: str) -> None:
    version = fields.int16()
    if version < 0:
        raise CorruptBatch(f"a {kind} has version {version}")
