"""aiokafka: transactions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from tests.peers.clients.scenario import Scenario, expect, expect_equal
from tests.waiting import HANG_S


@contextlib.asynccontextmanager
async def _started(client: Any) -> AsyncIterator[Any]:
    await client.start()
    try:
        yield client
    finally:
        await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


async def _make_topics(bootstrap: str, *names: str) -> None:
    async with _started(AIOKafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        await admin.create_topics([NewTopic(name, 1, 1) for name in names])


def _producer(bootstrap: str, name: str) -> Any:
    return _started(AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name))


async def _send(producer: Any, topic: str, *values: bytes) -> None:
    for value in values:
        await producer.send_and_wait(topic, value, partition=0, timestamp_ms=1000)


async def _read(consumer: Any, count: int) -> list[Any]:
    records: list[Any] = []
    async with asyncio.timeout(HANG_S):
        while len(records) < count:
            records.append(await consumer.getone())
    return records


async def _values(bootstrap: str, topic: str, count: int, isolation: str) -> list[bytes]:
    config = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest", "isolation_level": isolation}
    async with _started(AIOKafkaConsumer(**config)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return [record.value for record in await _read(consumer, count)]


async def _commit_and_abort(bootstrap: str) -> None:
    await _make_topics(bootstrap, "at-one", "at-two")
    async with _producer(bootstrap, "at-commit") as producer:
        for number in range(4):
            await producer.begin_transaction()
            await _send(producer, "at-one", b"a%d" % number, b"b%d" % number)
            await _send(producer, "at-two", b"c%d" % number)
            if number % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
    committed = await _values(bootstrap, "at-one", 4, "read_committed")
    expect_equal(committed, [b"a0", b"b0", b"a2", b"b2"], "committed")
    everything = await _values(bootstrap, "at-one", 8, "read_uncommitted")
    expect_equal(everything[2:4], [b"a1", b"b1"], "aborted")


async def _offsets(bootstrap: str) -> None:
    await _make_topics(bootstrap, "at-source", "at-sink")
    async with _started(AIOKafkaProducer(bootstrap_servers=bootstrap)) as plain:
        await _send(plain, "at-source", *[b"%d" % number for number in range(6)])
    source = TopicPartition("at-source", 0)
    config = {
        "bootstrap_servers": bootstrap,
        "group_id": "at-group",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "isolation_level": "read_committed",
    }
    async with (
        _started(AIOKafkaConsumer("at-source", **config)) as consumer,
        _producer(bootstrap, "at-copy") as producer,
    ):
        for commit in (True, False):
            records = await _read(consumer, 3)
            await producer.begin_transaction()
            await _send(producer, "at-sink", *[record.value for record in records])
            await producer.send_offsets_to_transaction({source: records[-1].offset + 1}, "at-group")
            if commit:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
        expect_equal(await consumer.committed(source), 3, "committed offset")
    expect_equal(await _values(bootstrap, "at-sink", 3, "read_committed"), [b"0", b"1", b"2"], "copied")


async def _fencing(bootstrap: str) -> None:
    await _make_topics(bootstrap, "at-fenced")
    async with _producer(bootstrap, "at-fencing") as first:
        await first.begin_transaction()
        await _send(first, "at-fenced", b"first")
        await first.commit_transaction()
        async with _producer(bootstrap, "at-fencing") as second:
            await second.begin_transaction()
            await _send(second, "at-fenced", b"second")
            await second.commit_transaction()
        try:
            await first.begin_transaction()
            await _send(first, "at-fenced", b"zombie")
            await first.commit_transaction()
        except KafkaError:
            pass
        else:
            expect(False, "the first instance was not fenced")
    expect_equal(await _values(bootstrap, "at-fenced", 2, "read_committed"), [b"first", b"second"], "values")


def _blocking(scenario: Callable[[str], Coroutine[Any, Any, None]]) -> Scenario:
    return lambda bootstrap: asyncio.run(scenario(bootstrap))


SCENARIOS: Final[dict[str, Scenario]] = {
    "transactions-commit-abort": _blocking(_commit_and_abort),
    "transactions-offsets": _blocking(_offsets),
    "transactions-fencing": _blocking(_fencing),
}
