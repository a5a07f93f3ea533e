"""The range assignor, with the subscriptions and assignments of "consumer" groups (KIP-429; formats in ``records``).

As in Apache Kafka's RangeAssignor, members in order (static ones by instance id first, then by member id) get
consecutive partitions of each topic; the first ``partitions % members`` of them get one more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from oncelog.base.errors import PeerError
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

RANGE: Final = "range"
_COMMON_VERSION: Final = 1
"""The version that every consumer since 2.4 understands."""


class Subscriber(NamedTuple):
    member_id: str
    instance_id: str | None
    topics: frozenset[str]


def member_subscription(topics: Sequence[str]) -> bytes:
    names = tuple(TopicName(topic) for topic in topics)
    return encode_subscription(Subscription(names), _COMMON_VERSION)


def subscriber(member_id: str, instance_id: str | None, metadata: bytes) -> Subscriber:
    """A member from a JoinGroup response. Raises PeerError when its metadata cannot be read."""
    try:
        topics = decode_subscription(metadata).topics
    except CorruptBatch as error:
        raise PeerError(f"member {member_id} sent a subscription that cannot be read: {error}") from error
    return Subscriber(member_id, instance_id, frozenset(topics))


def member_assignment(partitions: Sequence[TopicPartition]) -> bytes:
    return encode_assignment(Assignment(tuple(partitions)), _COMMON_VERSION)


def decode_member_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions in an assignment; none for empty bytes. Raises PeerError."""
    if not data:
        return ()
    try:
        return decode_assignment(data).partitions
    except CorruptBatch as error:
        raise PeerError(f"an assignment that cannot be read: {error}") from error


def range_assign(
    subscribers: Sequence[Subscriber], partition_counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Partitions by member id; members without any have an empty list. Unknown topics are ignored."""
    assigned: dict[str, list[TopicPartition]] = {subscriber.member_id: [] for subscriber in subscribers}
    for topic in sorted({topic for subscriber in subscribers for topic in subscriber.topics}):
        count = partition_counts.get(topic, 0)
        members = sorted((subscriber for subscriber in subscribers if topic in subscriber.topics), key=_order)
        quota, extra = divmod(count, len(members))
        start = 0
        for index, member in enumerate(members):
            end = start + quota + (index < extra)
            assigned[member.member_id] += [TopicPartition(TopicName(topic), number) for number in range(start, end)]
            start = end
    return assigned


def _order(member: Subscriber) -> tuple[bool, str]:
    return (member.instance_id is None, member.instance_id or member.member_id)
