"""Nominal types for the values that share an ``int``, ``str`` or ``bytes`` in the protocol.

A function that takes an offset declares ``Offset``, so that a type checker rejects a producer id. At run time they are
the plain values.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Final, NamedTuple, NewType, TypeVar

K = TypeVar("K")
V = TypeVar("V")
Offset = NewType("Offset", int)
"""Position of a record in a partition, 0-based; −1 means "none" in the protocol."""
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
LeaderEpoch = NewType("LeaderEpoch", int)
CoordinatorEpoch = NewType("CoordinatorEpoch", int)
BrokerId = NewType("BrokerId", int)
TopicName = NewType("TopicName", str)
TopicId = NewType("TopicId", bytes)
"""16 bytes, as on the wire; ``NO_TOPIC_ID`` (all zero) means "none"."""
GroupId = NewType("GroupId", str)
MemberId = NewType("MemberId", str)
TransactionalId = NewType("TransactionalId", str)

NO_OFFSET: Final = Offset(-1)
NO_PRODUCER_ID: Final = ProducerId(-1)
NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
NO_BROKER: Final = BrokerId(-1)
NO_TOPIC_ID: Final = TopicId(bytes(16))

CONSUMER_OFFSETS: Final = TopicName("__consumer_offsets")
TRANSACTION_STATE: Final = TopicName("__transaction_state")
SHARE_GROUP_STATE: Final = TopicName("__share_group_state")
INTERNAL_TOPICS: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)


class TopicPartition(NamedTuple):
    """A partition of a topic; sorts by topic name, then index."""

    topic: TopicName
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def group_by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def by_topic(partitions: Iterable[TopicPartition]) -> dict[TopicName, list[int]]:
    return group_by_key(partitions)


_PARTITION_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d{1,10})")


def partition_of_directory(name: str) -> TopicPartition | None:
    """The partition of a directory called ``topic-partition``, or None for any other name."""
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None:
        return None
    return TopicPartition(TopicName(match["topic"]), int(match["partition"]))


def uuid_text(value: bytes) -> str:
    """A 16-byte id as Apache Kafka prints it: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def uuid_bytes(text: str) -> bytes:
    """The id that :func:`uuid_text` prints as ``text``. Raises ValueError when the text is not such an id."""
    value = base64.urlsafe_b64decode(text + "==")
    if len(value) != 16:
        raise ValueError(f"not a 16-byte id: {text!r}")
    return value
