"""The topic of a registry that is deleted and created again under its reader."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog.base.ids import NO_TOPIC_ID, TopicName, TopicPartition
from oncelog.client.aio import AsyncClient
from oncelog.client.machine.positions import Fetched
from oncelog.registry.errors import RegistryError
from oncelog.registry.store import Store
from oncelog.registry.topic import SchemasTopic
from oncelog.registry.topic_records import Key, KeyType, TopicRecord

PARTITION = TopicPartition(TopicName("_schemas"), 0)


class FakeConsumer:
    def __init__(self, polls: Sequence[Fetched]) -> None:
        self._polls = list(polls)
        self.end = 0
        self.assigned: list[dict[TopicPartition, int]] = []

    async def poll(self, _wait_ms: int) -> list[Fetched]:
        return [self._polls.pop(0)]

    async def list_offsets(self, offsets: dict[TopicPartition, int], **_options: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(offsets, self.end)

    async def assign(self, positions: dict[TopicPartition, int]) -> None:
        self.assigned.append(positions)


def fetched(next_offset: int, topic_id: bytes, error_code: int = 0) -> Fetched:
    return Fetched(PARTITION, memoryview(b""), 9, 9, 0, [], error_code, 0, next_offset, topic_id)


async def read(*polls: Fetched) -> tuple[SchemasTopic, FakeConsumer]:
    topic = SchemasTopic(cast("AsyncClient", SimpleNamespace(view=None, cluster=None)), Store(), "_schemas")
    topic.store.apply(TopicRecord(Key(KeyType.MODE, "s"), {"mode": "READONLY"}))
    consumer = FakeConsumer(polls)
    topic._consumer = cast("Any", consumer)
    for _ in polls:
        await topic._read_some()
    return topic, consumer


@pytest.mark.parametrize(("last", "is_read_again"), [(b"a", False), (NO_TOPIC_ID, False), (b"b", True)])
def test_a_topic_of_another_id_is_read_from_its_start(last: bytes, is_read_again: bool) -> None:
    topic, consumer = asyncio.run(read(fetched(5, b"a"), fetched(7, last)))
    assert bool(consumer.assigned) == is_read_again
    assert (topic.position, bool(topic.store.modes)) == ((0, False) if is_read_again else (7, True))


def test_nothing_is_decided_by_a_store_that_is_ahead_of_its_topic() -> None:
    async def run() -> None:
        topic, consumer = await read(fetched(5, b"a"))
        consumer.end = 5
        await topic.catch_up()
        consumer.end = 4
        with pytest.raises(RegistryError, match="read again"):
            await topic.catch_up()

    asyncio.run(run())
