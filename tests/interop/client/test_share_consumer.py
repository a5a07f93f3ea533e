"""Share consumers of oncelog and Apache Kafka: acknowledgements, locks, members that die, transactions (KIP-932)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator

import pytest

from oncelog.admin.configs import ResourceType, alter_configs
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio import AsyncClient, AsyncShareConsumer
from oncelog.client.blocking import (
    Acknowledge,
    Acknowledged,
    Client,
    ClientConfig,
    Committed,
    Producer,
    ShareConsumer,
    ShareRecord,
    ShareSettings,
    TransactionalProducer,
    TransactionSettings,
)
from oncelog.client.errors import BrokerRefused, OutOfTurn
from oncelog.client.programs.group import commit_offsets
from oncelog.testing import Broker
from tests.peers.apache_kafka import ApacheKafka
from tests.waiting import HANG_S

pytestmark = pytest.mark.slow
CONFIG = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "15000",
    "group.share.min.session.timeout.ms": "3000",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
}
FAST = ClientConfig(retry_backoff_ms=20, unknown_topic_grace_ms=3_000)
EXPLICIT = ShareSettings(acknowledgement="explicit", max_wait_ms=50)
IMPLICIT = ShareSettings(max_wait_ms=50)
names = itertools.count()


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka(heap_mb=320, properties=CONFIG) as running:
        yield running


@pytest.fixture(scope="module")
def oncelog() -> Iterator[Broker]:
    with Broker(CONFIG) as running:
        yield running


@pytest.fixture(params=["oncelog", pytest.param("kafka", marks=pytest.mark.java)])
def servers(request: pytest.FixtureRequest) -> str:
    running: ApacheKafka | Broker = request.getfixturevalue(request.param)
    return running.bootstrap_servers


@pytest.fixture
def client(servers: str) -> Iterator[Client]:
    with Client(servers, config=FAST) as client:
        yield client


@pytest.fixture
def topic(client: Client) -> str:
    """A topic of one partition, and the name of its group, which reads from the beginning."""
    name = f"t{next(names)}"
    create_topic(client, NewTopic(name, partitions=1, replication_factor=1))
    configure(client, name, {"share.auto.offset.reset": "earliest"})
    return name


def configure(client: Client, group: str, configs: dict[str, str]) -> None:
    alter_configs(client, ResourceType.GROUP, group, change=configs)


def fill(client: Client, topic: str, count: int, first: int = 0) -> None:
    with Producer(client) as producer:
        for number in range(first, first + count):
            producer.send(topic, b"%d" % number)


def read(consumer: ShareConsumer, count: int) -> list[ShareRecord]:
    """Poll until so many records have come."""
    records: list[ShareRecord] = []
    for _ in range(HANG_S * 10):
        records += consumer.poll(100)
        if len(records) >= count:
            return records
    raise AssertionError(f"{len(records)} of {count} records")


def numbers(records: Iterable[ShareRecord]) -> list[int]:
    return [int(record.value or b"-1") for record in records]


def failed(results: Iterable[Acknowledged]) -> list[Acknowledged]:
    return [result for result in results if result.error is not None]


def test_two_consumers_share_a_partition_and_get_each_record_once(client: Client, topic: str) -> None:
    few = ShareSettings(acquire="record_limit", max_records=5, max_wait_ms=50)
    seen: list[int] = []
    with ShareConsumer(client, topic, [topic], settings=few) as first:
        read_first = first.poll(3000)
        with ShareConsumer(client, topic, [topic], settings=few) as second:
            second.poll(3000)
            fill(client, topic, 100)
            counts = [0, 0]
            while len(seen) < 100:
                for index, consumer in enumerate((first, second)):
                    records = consumer.poll(50)
                    counts[index] += len(records)
                    seen += numbers(records)
            assert not failed(first.commit())
            assert not failed(second.commit())
    assert (read_first, sorted(seen)) == ([], list(range(100)))
    assert all(counts)


def test_a_released_record_comes_again_and_a_rejected_one_does_not(client: Client, topic: str) -> None:
    fill(client, topic, 4)
    with ShareConsumer(client, topic, [topic], settings=EXPLICIT) as consumer:
        records = read(consumer, 4)
        assert [record.delivery_count for record in records] == [1] * 4
        assert consumer.lock_timeout_ms == 15_000
        consumer.accept(records[0])
        consumer.release(records[1])
        consumer.reject(records[2])
        consumer.accept(records[3])
        with pytest.raises(OutOfTurn, match="acknowledged already"):
            consumer.accept(records[3])
        assert [(r.first_offset, r.kind.name, r.error) for r in consumer.commit()] == [
            (0, "ACCEPT", None),
            (1, "RELEASE", None),
            (2, "REJECT", None),
            (3, "ACCEPT", None),
        ]
        again = read(consumer, 1)
        assert (numbers(again), again[0].delivery_count) == ([1], 2)
        consumer.accept(again[0])
        assert not failed(consumer.commit())
        assert consumer.poll(500) == []


def test_a_renewed_lock_holds_and_another_ends(client: Client, topic: str) -> None:
    configure(client, topic, {"share.record.lock.duration.ms": "1000"})
    fill(client, topic, 2)
    with ShareConsumer(client, topic, [topic], settings=EXPLICIT) as consumer:
        kept, left = read(consumer, 2)
        first_ms = consumer.lock_until_ms(kept)
        again: list[ShareRecord] = []
        while not again:
            consumer.renew(kept)
            assert not failed(consumer.commit())
            again = consumer.poll(200)
        assert [(record.offset, record.delivery_count) for record in again] == [(left.offset, 2)]
        assert (consumer.lock_until_ms(kept) or 0) > (first_ms or 0)
        consumer.accept(kept)
        consumer.accept(again[0])
        assert not failed(consumer.commit())


def test_an_acknowledgement_after_the_lock_is_refused(client: Client, topic: str) -> None:
    configure(client, topic, {"share.record.lock.duration.ms": "1000"})
    fill(client, topic, 2)
    with ShareConsumer(client, topic, [topic], settings=EXPLICIT) as slow:
        _, late = read(slow, 2)
        with ShareConsumer(client, topic, [topic], settings=EXPLICIT) as other:
            again = read(other, 2)
            assert [record.delivery_count for record in again] == [2, 2]
            other.accept(again[1])
            assert not failed(other.commit())
        slow.accept(late)
        (result,) = slow.commit()
        assert isinstance(result.error, BrokerRefused)
        assert result.error.code == ErrorCode.INVALID_RECORD_STATE


def test_the_records_of_a_dead_member_come_again(servers: str, client: Client, topic: str) -> None:
    fill(client, topic, 3)
    with Client(servers, config=FAST) as another:
        dead = ShareConsumer(another, topic, [topic], settings=EXPLICIT)
        records = read(dead, 3)
        dead.accept(records[0])
        assert not failed(dead.commit())
        dead._programs.abort()  # as if the process had been killed: nothing is sent
        dead._programs.member.close()
        with ShareConsumer(client, topic, [topic], settings=IMPLICIT) as consumer:
            assert numbers(read(consumer, 2)) == [1, 2]
            consumer.commit()
            assert consumer.poll(300) == []


def test_a_consumer_that_closes_gives_back_what_it_has_not_acknowledged(client: Client, topic: str) -> None:
    fill(client, topic, 3)
    with ShareConsumer(client, topic, [topic], settings=EXPLICIT) as first:
        records = read(first, 3)
        first.accept(records[1])
    with ShareConsumer(client, topic, [topic], settings=IMPLICIT) as second:
        assert numbers(read(second, 2)) == [0, 2]


def test_only_committed_records_are_delivered_and_markers_are_gaps(client: Client, topic: str) -> None:
    configure(client, topic, {"share.isolation.level": "read_committed"})
    with TransactionalProducer(client, TransactionSettings(f"p-{topic}")) as producer:
        producer.initialize()
        for number, commits in ((1, True), (2, False), (3, True)):
            producer.begin()
            producer.send(topic, b"%d" % number)
            if commits:
                producer.commit()
            else:
                producer.abort()
    with ShareConsumer(client, topic, [topic], settings=EXPLICIT) as consumer:
        records = read(consumer, 2)
        assert numbers(records) == [1, 3]
        for record in records:
            consumer.accept(record)
        assert [(r.kind, r.error) for r in consumer.commit()] == [(Acknowledge.ACCEPT, None)] * 2
        fill(client, topic, 1, first=4)
        assert numbers(read(consumer, 1)) == [4]


def test_a_loop_accepts_a_record_once_it_goes_on(client: Client, topic: str) -> None:
    fill(client, topic, 10)
    told: list[Acknowledged] = []
    consumer = ShareConsumer(client, topic, [topic], settings=IMPLICIT, on_acknowledged=told.extend)
    with consumer:
        for record in consumer:
            if numbers([record]) == [5]:
                break
        consumer.commit()
    assert [(r.first_offset, r.last_offset, r.error) for r in told] == [(0, 5, None)]
    with ShareConsumer(client, topic, [topic], settings=IMPLICIT) as rest:
        assert numbers(rest.records(idle_ms=1000)) == [6, 7, 8, 9]


def test_batches_are_acknowledged_without_reading_their_records(client: Client, topic: str) -> None:
    fill(client, topic, 1000)
    count = 0
    with ShareConsumer(client, topic, [topic], settings=EXPLICIT) as consumer:
        while count < 1000:
            for batches in consumer.poll_batches(1000):
                count += sum(last - first + 1 for first, last, _ in batches.acquired)
                consumer.accept(batches)
        assert not failed(consumer.commit())
        assert consumer.poll(200) == []


def test_another_subscription_is_read_by_the_same_member(client: Client, topic: str) -> None:
    other = f"{topic}-other"
    create_topic(client, NewTopic(other, partitions=2, replication_factor=1))
    fill(client, topic, 1)
    fill(client, other, 1, first=7)
    with ShareConsumer(client, topic, [topic], settings=IMPLICIT) as consumer:
        assert numbers(read(consumer, 1)) == [0]
        consumer.subscribe([other])
        assert numbers(read(consumer, 1)) == [7]
        assert {partition.topic for partition in consumer.assignment} == {other}


def test_asyncio_workers_acknowledge_while_others_work(servers: str, client: Client, topic: str) -> None:
    fill(client, topic, 20)

    async def run() -> list[int]:
        done: list[int] = []
        async with (
            AsyncClient(servers, config=FAST) as other,
            AsyncShareConsumer(other, topic, [topic], settings=EXPLICIT) as consumer,
        ):

            async def work(record: ShareRecord) -> None:
                await asyncio.sleep(0)
                if record.delivery_count == 1 and record.offset % 5 == 0:
                    consumer.release(record)
                else:
                    consumer.accept(record)
                    done.append(record.offset)

            async with asyncio.timeout(HANG_S), asyncio.TaskGroup() as workers:
                async for record in consumer.records(idle_ms=1000):
                    workers.create_task(work(record))
            assert not failed(await consumer.commit())
        return done

    assert sorted(asyncio.run(run())) == list(range(20))


def test_a_group_of_another_type_is_refused(client: Client, topic: str) -> None:
    group = f"classic-{topic}"
    commit_offsets(client, group, {TopicPartition(TopicName(topic), 0): Committed(0)})
    with ShareConsumer(client, group, [topic]) as consumer, pytest.raises(BrokerRefused) as refused:
        consumer.poll(1000)
    assert refused.value.code == ErrorCode.GROUP_ID_NOT_FOUND
