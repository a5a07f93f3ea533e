"""Two-phase commit (KIP-939) with our asyncio client on our broker: whoever dies between prepare and complete.

The blocking client's part is in ``test_transactions``; what clusters without it say is in ``test_transactions_java``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio import AsyncClient, AsyncTransactionalProducer
from oncelog.client.blocking import Client, ClientConfig, FetchSettings
from oncelog.client.errors import BrokerRefused, ClientError, OutOfTurn, ProducerFenced
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.transaction_states import State
from oncelog.client.machine.transaction_values import Ended, StoredTransaction, TransactionSettings
from oncelog.testing import Broker

FAST = ClientConfig(retry_backoff_ms=20)
T0 = TopicPartition(TopicName("t"), 0)
NEVER = TransactionSettings("x", two_phase=True)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"node.id": "1", "transaction.two.phase.commit.enable": "true"}) as running:
        with Client(running.bootstrap_servers, config=FAST) as client:
            create_topic(client, NewTopic("t", partitions=1))
        yield running


def seen(broker: Broker) -> list[bytes]:
    """Everything that a reader at read_committed sees."""
    with Client(broker.bootstrap_servers, config=FAST) as client:
        end = client.list_offsets({T0: -1}, read_committed=True)[T0].offset
        fetched = client.fetch({T0: 0}, until={T0: end}, settings=FetchSettings(read_committed=True))
        return [r.value or b"" for item in fetched for r in read_fetched(item, read_committed=True)]


def killed(broker: Broker) -> None:
    broker.kill()
    broker.start()


def opened(broker: Broker) -> AsyncClient:
    return AsyncClient(broker.bootstrap_servers, config=FAST)


async def prepared(producer: AsyncTransactionalProducer, value: bytes) -> StoredTransaction:
    producer.begin()
    await producer.send("t", value, partition=0)
    return StoredTransaction.parse(str(await producer.prepare()))


@pytest.mark.slow
@pytest.mark.parametrize("decided", [True, False])
def test_the_node_dies_between_prepare_and_complete(broker: Broker, decided: bool) -> None:
    async def run() -> None:
        async with opened(broker) as client, AsyncTransactionalProducer(client, NEVER) as producer:
            await producer.initialize()
            stored = await prepared(producer, b"a")
            assert producer.prepared == stored
            with pytest.raises(OutOfTurn):
                await producer.send("t", b"too late", partition=0)
            await asyncio.to_thread(killed, broker)
            assert await producer.complete(stored if decided else None) is (
                Ended.COMMITTED if decided else Ended.ABORTED
            )
            async with producer.transaction():
                await producer.send("t", b"b", partition=0)

    asyncio.run(asyncio.wait_for(run(), 30))
    assert seen(broker) == ([b"a", b"b"] if decided else [b"b"])


@pytest.mark.slow
def test_the_client_dies_and_the_node_too_and_another_ends_it_as_was_stored(broker: Broker) -> None:
    async def run() -> None:
        async with opened(broker) as client:
            first = AsyncTransactionalProducer(client, NEVER)
            await first.initialize()
            stored = await prepared(first, b"a")
            await first.close()
        await asyncio.to_thread(killed, broker)
        async with opened(broker) as client, AsyncTransactionalProducer(client, NEVER) as second:
            assert await second.initialize(keep_prepared=True) == stored
            assert second.state is State.PREPARED
            with pytest.raises(OutOfTurn):
                second.begin()
            assert await second.complete(stored) is Ended.COMMITTED
            assert await second.complete(stored) is Ended.NOTHING_PREPARED
            with pytest.raises(ProducerFenced):
                await zombie(client, stored)

    async def zombie(client: AsyncClient, stored: StoredTransaction) -> None:
        """The first instance wakes up, and would abort what was committed."""
        late = AsyncTransactionalProducer(client, NEVER)
        late.transactions.state, late.transactions.prepared = State.PREPARED, stored
        late.transactions.producer_id, late.transactions.producer_epoch = stored.producer_id, stored.producer_epoch
        late.transactions.version, late.transactions._started = 2, True
        await late.complete(None)

    asyncio.run(asyncio.wait_for(run(), 30))
    assert seen(broker) == [b"a"]


@pytest.mark.slow
def test_another_transaction_than_the_stored_one_is_aborted(broker: Broker) -> None:
    async def run() -> None:
        async with opened(broker) as client, AsyncTransactionalProducer(client, NEVER) as producer:
            await producer.initialize()
            older = await prepared(producer, b"a")
            await producer.complete(older)
            newer = await prepared(producer, b"b")
            assert newer != older
            await producer.close()
            async with AsyncTransactionalProducer(client, NEVER) as second:
                assert await second.initialize(keep_prepared=True) == newer
                assert await second.complete(older) is Ended.ABORTED

    asyncio.run(asyncio.wait_for(run(), 30))
    assert seen(broker) == [b"a"]


@pytest.mark.slow
def test_the_node_dies_while_it_is_completed_and_the_same_is_asked_again(broker: Broker) -> None:
    async def run() -> None:
        impatient = ClientConfig(retry_backoff_ms=20, retry_timeout_ms=50, bootstrap_timeout_ms=0)
        async with AsyncClient(broker.bootstrap_servers, config=impatient) as client:
            producer = AsyncTransactionalProducer(client, NEVER)
            await producer.initialize()
            stored = await prepared(producer, b"a")
            await asyncio.to_thread(broker.kill)
            with pytest.raises(ClientError):
                await producer.complete(stored)
            assert producer.state is State.COMMITTING
            with pytest.raises(OutOfTurn):
                await producer.abort()
            await asyncio.to_thread(broker.start)
            assert await producer.complete(stored) is Ended.COMMITTED
            await producer.close()

    asyncio.run(asyncio.wait_for(run(), 30))
    assert seen(broker) == [b"a"]


@pytest.mark.slow
def test_where_it_is_not_allowed_it_is_refused_before_anything_is_begun(oncelog_broker: Broker) -> None:
    async def run() -> None:
        async with opened(oncelog_broker) as client:
            producer = AsyncTransactionalProducer(client, NEVER)
            with pytest.raises(BrokerRefused):
                await producer.initialize()
            assert producer.state is State.FATAL_ERROR

    asyncio.run(asyncio.wait_for(run(), 30))
