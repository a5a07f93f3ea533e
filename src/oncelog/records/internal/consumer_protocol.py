"""Subscriptions and assignments of "consumer" groups, which members exchange through the broker.

The broker reads them to describe groups, to know which topics a group still consumes (their offsets must not expire or
be deleted), and to convert groups between the protocols (KIP-848).

A version above the highest known one is read as the highest, because newer versions only append fields. A negative
version and malformed bytes raise CorruptBatch. KIP-429, KIP-792, KIP-881.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import Final

from oncelog.base.ids import TopicName, TopicPartition, by_topic
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal.primitives import Reader, Writer

PROTOCOL_TYPE: Final = "consumer"
HIGHEST_VERSION: Final = 3
_MIN_TOPIC_BYTES: Final = 2
_MIN_PARTITIONS_BYTES: Final = 6
_MAX_TOPICS: Final = 1 << 15
_TOPIC_BYTES: Final = 32
"""Topics of one member: so many, or more in larger data with names as long as this. Each costs 1 µs to decode."""

PartitionsByTopic = Mapping[TopicName, Sequence[int]]
"""Partitions as a member lists them: any number, any times."""


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
    subscription, owned = read_subscription(data)
    return replace(subscription, owned_partitions=_listed(owned))


def read_subscription(data: bytes) -> tuple[Subscription, PartitionsByTopic]:
    """A subscription without its owned partitions, and these. Raises CorruptBatch."""
    reader = Reader(data)
    version = _read_version(reader)
    topics = tuple(TopicName(reader.string()) for _ in range(_topic_count(reader, _MIN_TOPIC_BYTES)))
    user_data = reader.nullable_bytes()
    owned = _read_partitions(reader) if version >= 1 else {}
    generation = reader.int32() if version >= 2 else -1
    rack = reader.nullable_string() if version >= 3 else None
    # An empty rack counts as none, as in Apache Kafka.
    return Subscription(topics, user_data, (), generation, rack or None), owned


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
    """Raises CorruptBatch."""
    partitions, user_data = read_assignment(data)
    return Assignment(_listed(partitions), user_data)


def read_assignment(data: bytes) -> tuple[PartitionsByTopic, bytes | None]:
    """An assignment's partitions and user data. Raises CorruptBatch."""
    reader = Reader(data)
    _read_version(reader)
    return _read_partitions(reader), reader.nullable_bytes()


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


def _topic_count(reader: Reader, minimum_bytes: int) -> int:
    limit = max(_MAX_TOPICS, reader.left // _TOPIC_BYTES)
    if (count := reader.count(minimum_bytes)) > limit:
        raise CorruptBatch(f"{count} topics, at most {limit} are allowed")
    return count


def _read_partitions(reader: Reader) -> PartitionsByTopic:
    partitions: dict[TopicName, list[int]] = {}
    for _ in range(_topic_count(reader, _MIN_PARTITIONS_BYTES)):
        topic = TopicName(reader.string())
        count = reader.count(4)
        partitions.setdefault(topic, []).extend(struct.unpack(f">{count}i", reader.take(4 * count)))
    return partitions


def _listed(partitions: PartitionsByTopic) -> tuple[TopicPartition, ...]:
    # Without a Python call for each: a member may own tens of thousands.
    return tuple(chain.from_iterable(map(TopicPartition, repeat(topic), partitions[topic]) for topic in partitions))


def _write_partitions(writer: Writer, partitions: tuple[TopicPartition, ...] | list[TopicPartition]) -> None:
    topics = by_topic(partitions)
    writer.count(len(topics))
    for topic, indexes in topics.items():
        writer.string(topic)
        writer.count(len(indexes))
        for index in indexes:
            writer.int32(index)
