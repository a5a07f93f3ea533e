"""The client over asyncio against our broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio import AsyncClient, AsyncConsumer, AsyncGroupConsumer, AsyncProducer, AsyncTransactionalProducer
from oncelog.client.blocking import Client, ClientConfig, FetchSettings
from oncelog.client.blocking.producer import DeliveryFailed
from oncelog.client.blocking.transactions import Committed, GroupMetadata, TransactionSettings
from oncelog.client.errors import Closed, NoBrokerReachable, ProducerFenced, TransactionFailed, UnknownTopic
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.producer import ProducerSettings
from oncelog.client.machine.transaction_states import State
from oncelog.client.programs.group import committed_offsets
from oncelog.testing import Broker

FAST = ClientConfig(retry_backoff_ms=20, unknown_topic_grace_ms=0)
T0, T1 = (TopicPartition(TopicName("t"), index) for index in range(2))


def create(broker: Broker, **configs: str) -> None:
    with Client(broker.bootstrap_servers, config=FAST) as client:
        create_topic(client, NewTopic("t", partitions=2, configs={k.replace("_", "."): v for k, v in configs.items()}))


def committed(broker: Broker) -> list[bytes]:
    """The values that a reader at read_committed sees, in the order of the partitions."""
    with Client(broker.bootstrap_servers, config=FAST) as client:
        ends = client.list_offsets({T0: -1, T1: -1}, read_committed=True)
        values: list[bytes] = []
        for partition, end in ends.items():
            settings = FetchSettings(read_committed=True)
            for item in client.fetch({partition: 0}, until={partition: end.offset}, settings=settings):
                values += [r.value or b"" for r in read_fetched(item, read_committed=True)]
        return values


@asynccontextmanager
async def opened(broker: Broker) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(broker.bootstrap_servers, config=FAST) as client:
        yield client


def producer_of(client: AsyncClient) -> AsyncTransactionalProducer:
    return AsyncTransactionalProducer(client, TransactionSettings("x"))


@pytest.mark.slow
def test_all_that_is_sent_is_there_once_in_order_over_a_restart(oncelog_broker: Broker) -> None:
    create(oncelog_broker)

    async def run() -> None:
        async with (
            opened(oncelog_broker) as client,
            AsyncProducer(client, ProducerSettings(batch_bytes=200)) as producer,
        ):
            for number in range(600):
                await producer.send("t", b"%d" % number, partition=number % 2)
                if number == 300:
                    await producer.flush()
                    await asyncio.to_thread(oncelog_broker.restart)

    asyncio.run(run())
    evens, odds = [b"%d" % n for n in range(0, 600, 2)], [b"%d" % n for n in range(1, 600, 2)]
    assert committed(oncelog_broker) == evens + odds


@pytest.mark.slow
def test_transactions_and_their_offsets(oncelog_broker: Broker) -> None:
    create(oncelog_broker)

    async def run() -> None:
        async with opened(oncelog_broker) as client, producer_of(client) as producer:
            await producer.initialize()
            for number in range(4):
                producer.begin()
                for partition in range(2):
                    await producer.send("t", b"%d" % number, partition=partition)
                await producer.send_offsets({T0: Committed(number)}, GroupMetadata("g"))
                await (producer.abort() if number % 2 else producer.commit())
            newer = AsyncTransactionalProducer(client, TransactionSettings("x"))
            await newer.initialize()
            producer.begin()
            with pytest.raises(ProducerFenced):
                await producer.send_offsets({T0: Committed(9)}, GroupMetadata("g"))
            assert producer.state is State.FATAL_ERROR

    asyncio.run(run())
    assert committed(oncelog_broker) == [b"0", b"2", b"0", b"2"]
    with Client(oncelog_broker.bootstrap_servers, config=FAST) as client:
        assert committed_offsets(client, "g", [T0], require_stable=True)[T0].offset == 2


@pytest.mark.slow
def test_a_cancelled_commit_is_gone_on_with_or_taken_back(oncelog_broker: Broker) -> None:
    create(oncelog_broker)

    async def run() -> None:
        async with opened(oncelog_broker) as client, producer_of(client) as producer:
            await producer.initialize()
            for number in range(12):
                producer.begin()
                await producer.send("t", b"%d" % number, partition=0)
                task = asyncio.create_task(producer.commit())
                for _ in range(number):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                if producer.state is not State.READY:
                    await producer.commit()

    asyncio.run(run())
    assert committed(oncelog_broker) == [b"%d" % number for number in range(12)]


@pytest.mark.slow
def test_what_is_refused_and_what_is_not_there(oncelog_broker: Broker) -> None:
    create(oncelog_broker, max_message_bytes="500")

    async def run() -> None:
        async with opened(oncelog_broker) as client:
            producer = AsyncProducer(client)
            await producer.send("t", b"x" * 1000, partition=0)
            with pytest.raises(DeliveryFailed) as caught:
                await producer.flush()
            assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
            with pytest.raises(UnknownTopic):
                await producer.send("missing", b"x")
            await producer.close()
        with pytest.raises(NoBrokerReachable):
            await AsyncClient("127.0.0.1:1", config={"bootstrap.timeout.ms": "0"}).link()

    asyncio.run(run())
    assert committed(oncelog_broker) == []


@pytest.mark.slow
def test_a_read_committed_consumer_sees_what_is_committed_over_a_restart(oncelog_broker: Broker) -> None:
    create(oncelog_broker)

    async def run() -> list[bytes]:
        values: list[bytes] = []
        async with opened(oncelog_broker) as client, producer_of(client) as producer:
            await producer.initialize()
            settings = FetchSettings(read_committed=True, max_wait_ms=50)
            async with AsyncConsumer(client, settings) as consumer:
                await consumer.assign({T0: 0, T1: 0})
                for number in range(20):
                    producer.begin()
                    await producer.send("t", b"%d" % number, partition=number % 2)
                    await producer.flush()
                    await (producer.abort() if number % 3 == 0 else producer.commit())
                    if number == 10:
                        await asyncio.to_thread(oncelog_broker.restart)
                while len(values) < 13:
                    for item in await consumer.poll():
                        assert not item.error_code
                        values += [r.value or b"" for r in read_fetched(item, read_committed=True)]
                ends = await consumer.list_offsets({T0: -1, T1: -1}, read_committed=True)
                assert {p: consumer.positions.of(p) for p in ends} == ends
        return sorted(values, key=int)

    assert asyncio.run(run()) == [b"%d" % number for number in range(20) if number % 3]


@pytest.mark.slow
def test_an_offset_that_is_not_there_is_told_once_and_a_cancelled_poll_loses_nothing(oncelog_broker: Broker) -> None:
    create(oncelog_broker)

    async def run() -> None:
        async with opened(oncelog_broker) as client, AsyncConsumer(client) as consumer:
            await consumer.assign({T0: 77})
            (told,) = await consumer.poll()
            assert told.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert await consumer.poll() == []
            await consumer.assign({T1: 0})
            task = asyncio.create_task(consumer.poll(10_000))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            async with AsyncProducer(client) as producer:
                await producer.send("t", b"a", partition=1)
            (fetched,) = await consumer.poll(5_000)
            assert [r.value for r in read_fetched(fetched)] == [b"a"]
            with pytest.raises(UnknownTopic):
                await consumer.assign({TopicPartition(TopicName("missing"), 0): 0})

    asyncio.run(run())


@pytest.mark.slow
def test_partitions_may_be_replaced_while_the_first_connection_is_made(oncelog_broker: Broker) -> None:
    """Found by copies in virtual time: what was to be asked for was not there any more."""
    create(oncelog_broker)

    async def run() -> None:
        async with opened(oncelog_broker) as client, AsyncConsumer(client) as consumer:
            async with AsyncProducer(client) as producer:
                await producer.send("t", b"a", partition=1)
            for steps in range(8):
                await consumer.assign({T0: 0})
                task = asyncio.create_task(consumer.poll())
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                await consumer.assign({T1: 0})
                (fetched,) = await consumer.poll(5_000)
                assert [r.value for r in read_fetched(fetched)] == [b"a"]
                await consumer.close()

    asyncio.run(run())


def test_what_cannot_be_sent_fails_alone(oncelog_broker: Broker) -> None:
    create(oncelog_broker)

    async def run() -> None:
        async with opened(oncelog_broker) as client, AsyncProducer(client) as producer:
            await producer.send("t", b"nowhere", partition=7)
            with pytest.raises(TypeError, match="value: give bytes"):
                await producer.send("t", "text", partition=0)  # type: ignore[arg-type]  # as without a type checker
            await producer.send("t", b"somewhere", partition=0)
            with pytest.raises(DeliveryFailed, match="partition 7 of topic 't'") as caught:
                await producer.flush()
            assert [record.value for record in caught.value.records] == [b"nowhere"]

    asyncio.run(run())
    assert committed(oncelog_broker) == [b"somewhere"]


def test_a_transaction_has_batches_as_small_as_the_topic_takes_them(oncelog_broker: Broker) -> None:
    create(oncelog_broker, max_message_bytes="2000")
    values = [b"%04d" % number for number in range(1_000)]

    async def main() -> None:
        async with AsyncClient(oncelog_broker.bootstrap_servers, config=FAST) as client:
            async with producer_of(client) as producer:
                await producer.initialize()
                for part in (values[:500], values[500:]):
                    async with producer.transaction():
                        for value in part:
                            await producer.send("t", value, partition=0)
                producer.begin()
                await producer.send("t", b"small", partition=0)
                await producer.send("t", b"x" * 3_000, partition=0)
                with pytest.raises(TransactionFailed, match=r"records of the transaction for t-0: larger than"):
                    await producer.commit()
                await producer.abort()
            async with AsyncProducer(client) as plain:
                for value in (b"before", b"x" * 3_000, b"after"):
                    await plain.send("t", value, partition=1)
                with pytest.raises(DeliveryFailed) as failed:
                    await plain.flush()
                await plain.flush()
        assert [len(record.value or b"") for record in failed.value.records] == [3_000]

    asyncio.run(main())
    assert committed(oncelog_broker) == [*values, b"before", b"after"]


def test_what_is_closed_stays_closed(oncelog_broker: Broker) -> None:
    create(oncelog_broker)

    async def run() -> None:
        async with opened(oncelog_broker) as client:
            async with AsyncGroupConsumer(client, "g", ["t"]) as consumer:
                await consumer.poll(0)
            with pytest.raises(Closed, match="the consumer of group 'g' is closed"):
                await consumer.poll(0)
        with pytest.raises(Closed, match="the client is closed"):
            await client.metadata(["t"])

    asyncio.run(run())
