"""Subscriptions and assignments of "consumer" groups, which members exchange through the broker.

The broker reads them to describe groups, to know which topics a group still consumes (their offsets must not expire or
be deleted), and to convert groups between the classic protocol and the new one (KIP-848).

As in Apache Kafka, a version above the highest known one is read as the highest, because newer versions only append
fields. A negative version and malformed bytes raise CorruptBatch. KIP-429, KIP-792, KIP-881.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import repeat
from typing import Final

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal.primitives import Reader, Writer

PROTOCOL_TYPE: Final = "consumer"
HIGHEST_VERSION: Final = 3
_MIN_TOPIC_BYTES: Final = 2
_MIN_PARTITIONS_BYTES: Final = 6


@dataclass(frozen=True, slots=True)
class Subscription:
    topics: tuple[TopicName, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


def version_of(metadata: bytes) -> int:
    """The version that a member's metadata is written in; 0 if that cannot be read."""
    try:
        return _read_version(Reader(metadata))
    except CorruptBatch:
        return 0


def decode_subscription(data: bytes) -> Subscription:
    """A member's metadata for a protocol of type "consumer". Raises CorruptBatch."""
    reader = Reader(data)
    version = _read_version(reader)
    topics = tuple(TopicName(reader.string()) for _ in range(reader.count(_MIN_TOPIC_BYTES)))
    user_data = reader.nullable_bytes()
    owned = _read_partitions(reader) if version >= 1 else ()
    generation = reader.int32() if version >= 2 else -1
    rack = reader.nullable_string() if version >= 3 else None
    # An empty rack counts as none, as in Apache Kafka.
    return Subscription(topics, user_data, owned, generation, rack or None)


def encode_subscription(subscription: Subscription, version: int = HIGHEST_VERSION) -> bytes:
    """A subscription as Apache Kafka's consumer encodes it, with sorted topics and partitions."""
    writer = Writer()
    writer.int16(version)
    writer.count(len(subscription.topics))
    for topic in sorted(subscription.topics):
        writer.string(topic)
    writer.bytes_(subscription.user_data)
    if version >= 1:
        _write_partitions(writer, sorted(subscription.owned_partitions))
    if version >= 2:
        writer.int32(subscription.generation)
    if version >= 3:
        writer.string(subscription.rack)
    return bytes(writer.output)


def decode_assignment(data: bytes) -> Assignment:
    """The leader's assignment for a member. Raises CorruptBatch."""
    reader = Reader(data)
    _read_version(reader)
    return Assignment(_read_partitions(reader), reader.nullable_bytes())


def encode_assignment(assignment: Assignment, version: int = HIGHEST_VERSION) -> bytes:
    """An assignment as Apache Kafka's consumer encodes it, topics in order of first appearance."""
    writer = Writer()
    writer.int16(version)
    _write_partitions(writer, assignment.partitions)
    writer.bytes_(assignment.user_data)
    return bytes(writer.output)


def _read_version(reader: Reader) -> int:
    version = reader.int16()
    if version < 0:
        raise CorruptBatch(f"consumer protocol of negative version {version}")
    return min(version, HIGHEST_VERSION)


def _read_partitions(reader: Reader) -> tuple[TopicPartition, ...]:
    partitions: list[TopicPartition] = []
    for _ in range(reader.count(_MIN_PARTITIONS_BYTES)):
        topic = TopicName(reader.string())
        count = reader.count(4)
        partitions += map(TopicPartition, repeat(topic), struct.unpack(f">{count}i", reader.take(4 * count)))
    return tuple(partitions)


def _write_partitions(writer: Writer, partitions: tuple[TopicPartition, ...] | list[TopicPartition]) -> None:
    by_topic: dict[TopicName, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    writer.count(len(by_topic))
    for topic, indexes in by_topic.items():
        writer.string(topic)
        writer.count(len(indexes))
        for index in indexes:
            writer.int32(index)
