"""aiokafka: producer, consumer, groups and admin client; the client with the oldest protocol versions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, OffsetAndMetadata, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import InvalidPartitionsError, KafkaError, OffsetOutOfRangeError

from tests.peers.clients.scenario import CODECS, Scenario, expect, expect_equal
from tests.waiting import HANG_S


@contextlib.asynccontextmanager
async def _started(client: Any) -> AsyncIterator[Any]:
    await client.start()
    try:
        yield client
    finally:
        await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


def _check_topic_errors(response: Any, expected: int = 0) -> None:
    for name, code, *_ in response.topic_errors:
        expect_equal(code, expected, f"error of {name}")


async def _make_topic(bootstrap: str, name: str, partitions: int = 1, **config: str) -> None:
    async with _started(AIOKafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        configs = {key.replace("_", "."): value for key, value in config.items()}
        _check_topic_errors(await admin.create_topics([NewTopic(name, partitions, 1, topic_configs=configs)]))


async def _read(consumer: Any, count: int) -> list[Any]:
    records: list[Any] = []
    async with asyncio.timeout(HANG_S):
        while len(records) < count:
            records.append(await consumer.getone())
    return records


async def _produce_and_consume(bootstrap: str) -> None:
    topic = "ak-codecs"
    await _make_topic(bootstrap, topic)
    sent: list[bytes] = []
    for codec in CODECS:
        compression = None if codec == "none" else codec
        async with _started(
            AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=compression,
                enable_idempotence=codec in ("none", "zstd"),
                linger_ms=20,
            )
        ) as producer:
            values = [f"{codec}-{number}".encode() * 20 for number in range(10)]
            futures = [
                await producer.send(topic, value, key=b"k", headers=[("h", b"1")], timestamp_ms=7000)
                for value in values
            ]
            await asyncio.gather(*futures)
            sent += values
    async with _started(AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        records = await _read(consumer, len(sent))
    expect_equal([record.value for record in records], sent, "values")
    expect_equal({record.timestamp for record in records}, {7000}, "timestamps")


async def _wait_assigned(expected: dict[Any, int]) -> None:
    async with asyncio.timeout(HANG_S):
        while any(len(consumer.assignment()) != count for consumer, count in expected.items()):
            await asyncio.sleep(0.05)


async def _groups(bootstrap: str) -> None:
    topic, group = "ak-group", "ak-group"
    await _make_topic(bootstrap, topic, 4)

    def member() -> Any:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            session_timeout_ms=6000,
        )

    async with _started(member()) as first:
        await _wait_assigned({first: 4})
        async with _started(member()) as second:
            await _wait_assigned({first: 2, second: 2})
        await _wait_assigned({first: 4})
        await first.commit({TopicPartition(topic, 1): OffsetAndMetadata(3, "note")})
        expect_equal(await first.committed(TopicPartition(topic, 1)), 3, "committed offset")
        expect_equal(await first.committed(TopicPartition(topic, 2)), None, "no committed offset")


async def _commit_and_resume(bootstrap: str) -> None:
    topic, group = "ak-commit", "ak-commit"
    await _make_topic(bootstrap, topic)
    async with _started(AIOKafkaProducer(bootstrap_servers=bootstrap)) as producer:
        for number in range(6):
            await producer.send_and_wait(topic, str(number).encode())
    config = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    async with _started(AIOKafkaConsumer(topic, **config)) as first:
        expect_equal((await _read(first, 3))[2].value, b"2", "third value")
        await first.commit()
    async with _started(AIOKafkaConsumer(topic, **config)) as second:
        expect_equal((await _read(second, 1))[0].value, b"3", "first value after the commit")


async def _offsets_by_time(bootstrap: str) -> None:
    topic = "ak-times"
    await _make_topic(bootstrap, topic)
    partition = TopicPartition(topic, 0)
    async with _started(AIOKafkaProducer(bootstrap_servers=bootstrap)) as producer:
        for timestamp in (1000, 2000, 3000):
            await producer.send_and_wait(topic, b"v", timestamp_ms=timestamp)
    async with _started(AIOKafkaConsumer(bootstrap_servers=bootstrap)) as consumer:
        expect_equal(await consumer.beginning_offsets([partition]), {partition: 0}, "beginning")
        expect_equal(await consumer.end_offsets([partition]), {partition: 3}, "end")
        offsets = await consumer.offsets_for_times({partition: 1500})
        expect_equal(offsets[partition].offset, 1, "offset at 1500")


async def _long_poll_and_range(bootstrap: str) -> None:
    topic = "ak-poll"
    await _make_topic(bootstrap, topic)
    partition = TopicPartition(topic, 0)
    async with (
        _started(AIOKafkaProducer(bootstrap_servers=bootstrap)) as producer,
        _started(
            AIOKafkaConsumer(bootstrap_servers=bootstrap, fetch_max_wait_ms=30_000, auto_offset_reset="none")
        ) as consumer,
    ):
        consumer.assign([partition])
        consumer.seek(partition, 0)
        expect_equal(await consumer.getmany(timeout_ms=200), {}, "an empty topic")
        waiting = asyncio.create_task(_read(consumer, 1))
        await producer.send_and_wait(topic, b"now")
        expect_equal((await waiting)[0].value, b"now", "value")  # before the fetch's time is over, or _read gives up
        consumer.seek(partition, 100)
        await _refused(OffsetOutOfRangeError, _read(consumer, 1))


async def _admin(bootstrap: str) -> None:
    async with _started(AIOKafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        _check_topic_errors(await admin.create_topics([NewTopic("ak-admin", 2, 1)]))
        _check_topic_errors(await admin.create_topics([NewTopic("ak-admin", 2, 1)]), 36)
        _check_topic_errors(await admin.create_topics([NewTopic("ak admin", 2, 1)]), 17)
        _check_topic_errors(await admin.create_topics([NewTopic("ak-two", 2, 5)]), 38)
        _check_topic_errors(await admin.create_partitions({"ak-admin": NewPartitions(3)}))
        await _refused(InvalidPartitionsError, admin.create_partitions({"ak-admin": NewPartitions(2)}))
        (described,) = await admin.describe_topics(["ak-admin"])
        expect_equal(len(described["partitions"]), 3, "partitions")
        resource = ConfigResource(ConfigResourceType.TOPIC, "ak-admin", {"retention.ms": "5000"})
        await admin.alter_configs([resource])
        await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "ak-admin")], include_synonyms=True)
        async with _started(AIOKafkaProducer(bootstrap_servers=bootstrap)) as producer:
            await producer.send_and_wait("ak-admin", b"x", partition=0)
        lows = await admin.delete_records({TopicPartition("ak-admin", 0): RecordsToDelete(before_offset=1)})
        expect_equal(list(lows.values()), [1], "low watermarks")
        await admin.describe_cluster()
        await admin.list_topics()
        await admin.list_consumer_groups()
        _check_delete(await admin.delete_topics(["ak-admin"]), 0)
        _check_delete(await admin.delete_topics(["ak-admin"]), 3)


def _check_delete(response: Any, expected: int) -> None:
    for name, code, *_ in response.topic_error_codes:
        expect_equal(code, expected, f"error of {name}")


async def _refused(kind: type[KafkaError], call: Awaitable[Any]) -> None:
    try:
        await call
    except kind:
        return
    expect(False, f"not refused with {kind.__name__}")


def _blocking(scenario: Callable[[str], Coroutine[Any, Any, None]]) -> Scenario:
    def run(bootstrap: str) -> None:
        asyncio.run(scenario(bootstrap))

    return run


SCENARIOS: Final[dict[str, Scenario]] = {
    "produce-consume": _blocking(_produce_and_consume),
    "groups": _blocking(_groups),
    "commit-resume": _blocking(_commit_and_resume),
    "offsets-by-time": _blocking(_offsets_by_time),
    "long-poll": _blocking(_long_poll_and_range),
    "admin": _blocking(_admin),
}
