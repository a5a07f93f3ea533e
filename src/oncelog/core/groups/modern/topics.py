"""The cluster's topics as groups see them, and the hash by which a group notices that its own changed.

The hash is XXH3-64, as Apache Kafka's brokers store it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import xxhash

from oncelog.base.ids import TopicId, TopicName

_MAGIC: Final = b"\0"
NO_TOPICS: Final = 0


class Topics(Protocol):
    """The cluster's topics as groups see them."""

    @property
    def version(self) -> int:
        """The version of the metadata: it rises whenever topics or racks change."""

    @property
    def version_with_new_topics(self) -> int:
        """The version in which a topic was last created."""

    def id_of(self, name: TopicName) -> TopicId | None: ...

    def name_of(self, topic: TopicId) -> TopicName | None: ...

    def partitions_of(self, topic: TopicId) -> int: ...

    def hash_of(self, name: TopicName) -> int:
        """XXH3-64 of a topic's id, name, partitions and racks; it changes whenever they do."""
        ...


class NoTopics:
    """A cluster without topics."""

    version = 0
    version_with_new_topics = 0

    def id_of(self, name: TopicName) -> TopicId | None:
        return None

    def name_of(self, topic: TopicId) -> TopicName | None:
        return None

    def partitions_of(self, topic: TopicId) -> int:
        return 0

    def hash_of(self, name: TopicName) -> int:
        return 0


def hash_of_topic(topic_id: TopicId, name: TopicName, racks: Sequence[Iterable[str]]) -> int:
    """The hash of one topic. ``racks``: those of the replicas, for each partition."""
    # hash4j writes numbers little-endian and a string as UTF-16 code units followed by their number.
    high, low = struct.unpack(">qq", topic_id)
    parts = [_MAGIC, struct.pack("<qq", high, low), _text(name), struct.pack("<i", len(racks))]
    for partition, names in enumerate(racks):
        parts.append(struct.pack("<i", partition))
        parts += (struct.pack("<i", len(rack)) + _text(rack) for rack in sorted(names))
    return _signed(xxhash.xxh3_64_intdigest(b"".join(parts)))


def hash_of_topics(names: Iterable[TopicName], topics: Topics) -> int:
    """The hash of all topics that a group subscribes to and that exist."""
    hashes = [topics.hash_of(name) for name in sorted(names) if topics.id_of(name) is not None]
    return _signed(xxhash.xxh3_64_intdigest(struct.pack(f"<{len(hashes)}q", *hashes))) if hashes else NO_TOPICS


def _text(text: str) -> bytes:
    units = text.encode("utf-16-le")
    return units + struct.pack("<i", len(units) // 2)


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
