"""Small transactions by every Python client: one record of 100 B into one partition, and a commit.

Each client runs as its documentation says, with the settings that are best for one small transaction after another (no
linger). All of them in one process after another on the same broker, so that the ratios compare clients alone.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from bench.peers import Broker
from bench.transactions import small_transactions
from oncelog.client.aio import AsyncClient, AsyncTransactionalProducer
from oncelog.client.blocking import Client
from oncelog.client.blocking.transactions import TransactionalProducer, TransactionSettings

OURS: Final = "oncelog.client"
_PAYLOAD: Final = os.urandom(100)


def _name() -> str:
    return f"bench-clients-{time.time_ns()}"


def _rate(count: int, one: Callable[[], object]) -> float:
    """Transactions a second; the first ones, which look up leaders and coordinators, are not counted."""
    for _ in range(10):
        one()
    started = time.perf_counter()
    for _ in range(count):
        one()
    return count / (time.perf_counter() - started)


async def _rate_async(count: int, one: Callable[[], Any]) -> float:
    for _ in range(10):
        await one()
    started = time.perf_counter()
    for _ in range(count):
        await one()
    return count / (time.perf_counter() - started)


def _blocking(broker: Broker, topic: str, count: int) -> float:
    with (
        Client(broker.bootstrap_servers) as client,
        TransactionalProducer(client, TransactionSettings(_name())) as producer,
    ):
        producer.initialize()

        def one() -> None:
            producer.begin()
            producer.send(topic, _PAYLOAD, partition=0)
            producer.commit()

        return _rate(count, one)


def _asyncio(broker: Broker, topic: str, count: int) -> float:
    async def run() -> float:
        async with (
            AsyncClient(broker.bootstrap_servers) as client,
            AsyncTransactionalProducer(client, TransactionSettings(_name())) as producer,
        ):
            await producer.initialize()

            async def one() -> None:
                producer.begin()
                await producer.send(topic, _PAYLOAD, partition=0)
                await producer.commit()

            return await _rate_async(count, one)

    return asyncio.run(run())


def _confluent(broker: Broker, topic: str, count: int) -> float:
    return small_transactions(broker, topic, count, 1)[0]


def _aiokafka(broker: Broker, topic: str, count: int) -> float:
    from aiokafka import AIOKafkaProducer

    async def run() -> float:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=_name(), linger_ms=0)
        await producer.start()
        try:

            async def one() -> None:
                async with producer.transaction():
                    await producer.send(topic, _PAYLOAD, partition=0)

            return await _rate_async(count, one)
        finally:
            await producer.stop()

    return asyncio.run(run())


def _kafka_python(broker: Broker, topic: str, count: int) -> float:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=_name(), linger_ms=0)
    try:
        producer.init_transactions()

        def one() -> None:
            producer.begin_transaction()
            producer.send(topic, _PAYLOAD, partition=0)
            producer.commit_transaction()

        return _rate(count, one)
    finally:
        producer.close(timeout=10)


Measured = Mapping[str, float]
RIVALS: Final[Mapping[str, Callable[[Broker, str, int], float]]] = {
    "confluent-kafka": _confluent,
    "aiokafka": _aiokafka,
    "kafka-python": _kafka_python,
}


def client_figures(label: str, broker: Broker, topic: str, count: int) -> tuple[dict[str, float], dict[str, float]]:
    """Transactions a second of our blocking client and, beside it, of every other; our asyncio one beside aiokafka."""
    mine = _blocking(broker, topic, count)
    theirs = {name: rate(broker, topic, count) for name, rate in RIVALS.items()}
    asynchronous = _asyncio(broker, topic, count)
    mine = (mine + _blocking(broker, topic, count)) / 2
    ours = {f"{label}, {name}, transactions/s": mine for name in theirs}
    other = {f"{label}, {name}, transactions/s": rate for name, rate in theirs.items()}
    by_loop = f"{label}, asyncio beside aiokafka, transactions/s"
    return {**ours, by_loop: asynchronous}, {**other, by_loop: theirs["aiokafka"]}
