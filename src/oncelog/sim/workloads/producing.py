"""Producers: idempotent ones outside of transactions, and transactional ones that commit and abort by chance."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar, Final

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.producer import AsyncProducer
from oncelog.client.aio.transactions import AsyncTransactionalProducer
from oncelog.client.machine.producer import ProducerSettings
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.sim.checkers.history import Stream, Write
from oncelog.sim.workloads.base import Stage, Topic
from oncelog.sim.workloads.recording import Writes
from oncelog.sim.workloads.transacting import one_transaction
from oncelog.sim.world import ClientHost

SETTINGS: Final = ProducerSettings(delivery_timeout_ms=20_000)
LONGEST_PAUSE_MS: Final = 30_000
"""Within a transaction."""


@dataclass(frozen=True, slots=True)
class Producers:
    """``producers`` programs that write to one topic; with ``transactional`` in transactions."""

    name: str
    producers: int
    partitions: int
    pause_ms: int
    transactional: bool
    leaves_open: ClassVar[bool] = False
    timeout_ms: int = 10_000
    """Of the transactions: short enough to pass now and then."""

    @classmethod
    def draw(cls, name: str, entropy: random.Random, transaction_version: int) -> Producers:
        """By chance."""
        transactional = entropy.random() < 0.7
        timeout_ms = entropy.choice((2_000, 10_000, 60_000))
        pause_ms = entropy.choice((30, 80, 150))
        return cls(name, entropy.randint(1, 3), entropy.randint(1, 4), pause_ms, transactional, timeout_ms)

    def topics(self) -> list[Topic]:
        """One, with segments that roll every few seconds."""
        return [Topic(self.name, self.partitions)]

    def start(self, stage: Stage) -> None:
        """One program for each producer."""
        kind = _InTransactions if self.transactional else _Idempotent
        for index in range(self.producers):
            name = f"{self.name}-{index}"
            stage.supervise(name, kind(stage, self, name))

    async def look_back(self, stage: Stage, client: AsyncClient) -> None:
        """Nothing but the records counts."""


class _Producing:
    """What both kinds share: values that never repeat, over all lives of the program."""

    def __init__(self, stage: Stage, workload: Producers, name: str) -> None:
        self.stage = stage
        self.workload = workload
        self.name = name
        self.entropy = stage.entropy(name)
        self._count = 0

    async def __call__(self, host: ClientHost) -> None:
        raise NotImplementedError

    async def send_some(self, producer: AsyncProducer, writes: Writes) -> None:
        """A handful of records to partitions by chance."""
        for _ in range(self.entropy.randint(1, 4)):
            self._count += 1
            value = f"{self.name}/{self._count}"
            partition = TopicPartition(TopicName(self.workload.name), self.entropy.randrange(self.workload.partitions))
            writes.sending(Write(partition, value))
            await producer.send(partition.topic, value.encode(), partition=partition.partition)

    async def pause(self, host: ClientHost) -> None:
        """Between two rounds."""
        await host.sleep(self.entropy.randint(1, 2 * self.workload.pause_ms))


class _Idempotent(_Producing):
    """Each record once, in order, or a failure that says so."""

    async def __call__(self, host: ClientHost) -> None:
        writes = Writes(self.stage.world.kernel)
        try:
            async with host.client() as client, AsyncProducer(client, SETTINGS) as producer:
                producer.on_outcome = writes.take
                while not host.stopping:
                    await self.send_some(producer, writes)
                    await producer.flush()
                    await self.pause(host)
        finally:
            self.stage.recorder.streams.append(Stream(host.name, writes.all()))


class _InTransactions(_Producing):
    """Transactions one after another; one in five is aborted, some take longer than their time-out."""

    async def __call__(self, host: ClientHost) -> None:
        settings = TransactionSettings(self.name, timeout_ms=self.workload.timeout_ms)
        async with host.client() as client, AsyncTransactionalProducer(client, settings, SETTINGS) as producer:
            await producer.initialize()
            while not host.stopping:
                await one_transaction(
                    self.stage,
                    host,
                    producer,
                    lambda writes: self.fill(host, producer, writes),
                    entropy=self.entropy,
                    aborts=0.2,
                )
                await self.pause(host)

    async def fill(self, host: ClientHost, producer: AsyncTransactionalProducer, writes: Writes) -> None:
        """Send, and now and then take longer than the time-out."""
        await self.send_some(producer, writes)
        if self.entropy.random() < 0.02:
            await producer.flush()
            await host.sleep(self.entropy.randint(0, min(2 * self.workload.timeout_ms, LONGEST_PAUSE_MS)))
