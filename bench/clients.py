"""Small transactions by every Python client: one record of 100 B into one partition, and a commit.

Each client runs as its documentation says, with the settings that are best for one small transaction after another (no
linger). All stay open and take turns of a few transactions on the same broker, so that what else the machine does costs
each of them the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final

from bench.peers import Broker
from bench.transactions import transactional_producer
from oncelog.client.aio import AsyncClient, AsyncTransactionalProducer
from oncelog.client.blocking import Client
from oncelog.client.blocking.transactions import TransactionalProducer, TransactionSettings

_PAYLOAD: Final = os.urandom(100)
_A_TURN: Final = 20
_TIMEOUT_S: Final = 60.0
Turn = Callable[[int], None]
"""Carries out so many transactions."""


def _name() -> str:
    return f"bench-clients-{time.time_ns()}"


def _repeated(item: Callable[[], object]) -> Turn:
    def turn(count: int) -> None:
        for _ in range(count):
            item()

    return turn


def _repeated_on(loop: asyncio.AbstractEventLoop, item: Callable[[], Awaitable[object]]) -> Turn:
    async def run(count: int) -> None:
        for _ in range(count):
            await item()

    return lambda count: loop.run_until_complete(run(count))


@contextlib.contextmanager
def _blocking(broker: Broker, topic: str) -> Iterator[Turn]:
    with (
        Client(broker.bootstrap_servers) as client,
        TransactionalProducer(client, TransactionSettings(_name())) as producer,
    ):
        producer.initialize()

        def one() -> None:
            producer.begin()
            producer.send(topic, _PAYLOAD, partition=0)
            producer.commit()

        yield _repeated(one)


@contextlib.contextmanager
def _asyncio(broker: Broker, topic: str) -> Iterator[Turn]:
    with asyncio.Runner() as runner:
        client = AsyncClient(broker.bootstrap_servers)
        producer = AsyncTransactionalProducer(client, TransactionSettings(_name()))
        runner.run(producer.initialize())

        async def one() -> None:
            producer.begin()
            await producer.send(topic, _PAYLOAD, partition=0)
            await producer.commit()

        try:
            yield _repeated_on(runner.get_loop(), one)
        finally:
            runner.run(client.close())


@contextlib.contextmanager
def _confluent(broker: Broker, topic: str) -> Iterator[Turn]:
    producer = transactional_producer(broker, "clients", **{"linger.ms": 0, "socket.nagle.disable": True})

    def one() -> None:
        producer.begin_transaction()
        producer.produce(topic, _PAYLOAD, partition=0)
        producer.commit_transaction(_TIMEOUT_S)

    yield _repeated(one)


@contextlib.contextmanager
def _aiokafka(broker: Broker, topic: str) -> Iterator[Turn]:
    from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]  # it has no types

    async def started() -> AIOKafkaProducer:
        made = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=_name(), linger_ms=0)
        await made.start()
        return made

    with asyncio.Runner() as runner:
        producer = runner.run(started())

        async def one() -> None:
            async with producer.transaction():
                await producer.send(topic, _PAYLOAD, partition=0)

        try:
            yield _repeated_on(runner.get_loop(), one)
        finally:
            runner.run(producer.stop())


@contextlib.contextmanager
def _kafka_python(broker: Broker, topic: str) -> Iterator[Turn]:
    from kafka import KafkaProducer  # type: ignore[import-untyped]  # it has no types

    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=_name(), linger_ms=0)
    producer.init_transactions()

    def one() -> None:
        producer.begin_transaction()
        producer.send(topic, _PAYLOAD, partition=0)
        producer.commit_transaction()

    try:
        yield _repeated(one)
    finally:
        producer.close(timeout=10)


BLOCKING: Final = "oncelog.client"
ASYNCIO: Final = "oncelog.client.aio"
RIVALS: Final = ("confluent-kafka", "aiokafka", "kafka-python")
_CLIENTS: Final[Mapping[str, Callable[[Broker, str], contextlib.AbstractContextManager[Turn]]]] = {
    BLOCKING: _blocking,
    "confluent-kafka": _confluent,
    ASYNCIO: _asyncio,
    "aiokafka": _aiokafka,
    "kafka-python": _kafka_python,
}


def rates(broker: Broker, topic: str, count: int) -> dict[str, float]:
    """Transactions a second by client. The first turn, which looks up leaders and coordinators, does not count."""
    took = dict.fromkeys(_CLIENTS, 0.0)
    with contextlib.ExitStack() as stack:
        turns = {name: stack.enter_context(make(broker, topic)) for name, make in _CLIENTS.items()}
        for turn in turns.values():
            turn(_A_TURN)
        rounds = max(1, count // _A_TURN)
        for _ in range(rounds):
            for name, turn in turns.items():
                started = time.perf_counter()
                turn(_A_TURN)
                took[name] += time.perf_counter() - started
    return {name: rounds * _A_TURN / seconds for name, seconds in took.items()}


def client_figures(label: str, broker: Broker, topic: str, count: int) -> tuple[dict[str, float], dict[str, float]]:
    """Our clients, each beside every other: two figures of the same name for each pair."""
    measured = rates(broker, topic, count)
    pairs = [(mine, rival) for mine in (BLOCKING, ASYNCIO) for rival in RIVALS]
    names = {pair: f"{label}: {pair[0]} / {pair[1]}, tx/s" for pair in pairs}
    return {names[p]: measured[p[0]] for p in pairs}, {names[p]: measured[p[1]] for p in pairs}
