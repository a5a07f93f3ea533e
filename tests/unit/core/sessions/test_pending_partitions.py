"""The partitions of a follower's session that its requests look at."""

from __future__ import annotations

from oncelog.base.ids import TopicId, TopicName
from oncelog.core.sessions.fetch_cache import FetchPartition, PartitionKey
from oncelog.core.sessions.pending_partitions import PendingPartitions

TOPIC = TopicId(b"t" * 16)
KEYS: list[PartitionKey] = [(TOPIC, index) for index in range(4)]
LONG_MS = 10_000


def session() -> dict[PartitionKey, FetchPartition]:
    return {key: FetchPartition(TOPIC, TopicName("t"), key[1], 0, 1 << 20, 0, -1) for key in KEYS}


def new() -> PendingPartitions[PartitionKey, FetchPartition]:
    return PendingPartitions()


def looked_at(
    pending: PendingPartitions[PartitionKey, FetchPartition], held: dict[PartitionKey, FetchPartition], now_ms: int
) -> list[int]:
    return [partition.partition for partition in pending.of(held, now_ms, LONG_MS)]


def test_at_first_all_are_looked_at_then_those_that_were_not_settled() -> None:
    pending, held = new(), session()
    assert looked_at(pending, held, 0) == [0, 1, 2, 3]
    pending.settle(KEYS[:3])
    assert looked_at(pending, held, 1) == [3]


def test_what_changes_is_looked_at() -> None:
    pending, held = new(), session()
    looked_at(pending, held, 0)
    pending.settle(KEYS)
    pending.note([KEYS[1]])
    assert looked_at(pending, held, 1) == [1]


def test_all_are_looked_at_after_a_while() -> None:
    pending, held = new(), session()
    looked_at(pending, held, 0)
    pending.settle(KEYS)
    assert looked_at(pending, held, LONG_MS - 1) == []
    assert looked_at(pending, held, LONG_MS) == [0, 1, 2, 3]
    pending.settle(KEYS)
    assert looked_at(pending, held, LONG_MS + 1) == []


def test_what_the_follower_forgot_is_left_out() -> None:
    pending, held = new(), session()
    looked_at(pending, held, 0)
    del held[KEYS[0]]
    assert looked_at(pending, held, 1) == [1, 2, 3]
    held[KEYS[0]] = session()[KEYS[0]]
    assert looked_at(pending, held, 2) == [1, 2, 3]
