"""Programs that send records, outside transactions or within them, and the course of one transaction.

A program's values never repeat over all its lives. A workload chooses the records (:meth:`SendingProgram.draw_write`).
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar, Final, Protocol, TypeVar

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.producer import AsyncProducer
from oncelog.client.aio.transactions import AsyncTransactionalProducer
from oncelog.client.errors import TransactionFailed
from oncelog.client.machine.producer import ProducerSettings
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.sim.checkers.history import GroupPartition, RecordedOutcome, Stream, Transaction, Write
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.recorder import TOMBSTONE_HEADER, Writes
from oncelog.sim.workloads.kit.workload import WorkloadContext, WorkloadProgram

SETTINGS: Final = ProducerSettings(delivery_timeout_ms=20_000)
Fill = Callable[[Writes], Awaitable[None]]


class SendingWorkload(Protocol):
    """A workload named like its topic. ``pause_ms``: mean pause between rounds. ``transactional``: each round is a
    transaction.
    """

    @property
    def name(self) -> str: ...

    @property
    def pause_ms(self) -> int: ...

    @property
    def transactional(self) -> bool: ...


S = TypeVar("S", bound=SendingWorkload)


async def send_write(producer: AsyncProducer, writes: Writes, write: Write, timestamp_ms: int | None = None) -> None:
    """Record a write and send it. A tombstone has its value in a header."""
    writes.sending(write)
    value = write.value.encode()
    await producer.send(
        write.partition.topic,
        None if write.tombstone else value,
        key=None if write.key is None else write.key.encode(),
        partition=write.partition.partition,
        timestamp_ms=timestamp_ms,
        headers=((TOMBSTONE_HEADER, value),) if write.tombstone else (),
    )


async def run_transaction(
    context: WorkloadContext,
    host: ClientHost,
    producer: AsyncTransactionalProducer,
    fill: Fill,
    *,
    entropy: random.Random,
    aborts: float,
    offsets: Mapping[GroupPartition, int] | None = None,
) -> bool:
    """Begin, let ``fill`` send, flush, and commit or randomly abort. Returns True if it was committed. ``offsets``:
    those of groups that ``fill`` commits. Aborts after abortable errors, raises others.
    """
    kernel = context.world.kernel
    writes, outcome, ending_at = Writes(kernel), RecordedOutcome.ABORTED, None
    producer.on_outcome = writes.add_outcome
    name = f"{host.name}@{kernel.now_us}"
    try:
        producer.begin()
        await fill(writes)
        await producer.flush()
        if entropy.random() < aborts:
            await producer.abort()
        else:
            ending_at, outcome = kernel.now_us, RecordedOutcome.UNKNOWN
            await producer.commit()
            outcome = RecordedOutcome.COMMITTED
    except TransactionFailed:
        await producer.abort()
    finally:
        ended = Transaction(name, host.name, writes.all(), outcome, ending_at, offsets or {})
        context.recorder.transactions.append(ended)
    return outcome is RecordedOutcome.COMMITTED


class SendingProgram(WorkloadProgram[S]):
    """Rounds of records with pauses in between; in a transactional workload each is a transaction."""

    settings: ProducerSettings = SETTINGS
    # Probability that a transaction is aborted.
    aborts: ClassVar[float] = 0.2
    # The timeout of a transaction.
    timeout_ms: int = 10_000
    # The maximum number of records per round.
    most_records: int = 4

    async def __call__(self, host: ClientHost) -> None:
        await (self._in_transactions(host) if self.workload.transactional else self._one_by_one(host))

    def partition(self, index: int) -> TopicPartition:
        return TopicPartition(TopicName(self.workload.name), index)

    # A workload may override these.

    async def draw_write(self, client: AsyncClient) -> Write:
        raise NotImplementedError

    async def send_records(self, client: AsyncClient, producer: AsyncProducer, writes: Writes) -> None:
        for _ in range(self.entropy.randint(1, self.most_records)):
            await send_write(producer, writes, await self.draw_write(client))

    async def fill(
        self, host: ClientHost, client: AsyncClient, producer: AsyncTransactionalProducer, writes: Writes
    ) -> None:
        await self.send_records(client, producer, writes)

    async def run_transaction(
        self, host: ClientHost, client: AsyncClient, producer: AsyncTransactionalProducer
    ) -> None:
        await run_transaction(
            self.context,
            host,
            producer,
            lambda writes: self.fill(host, client, producer, writes),
            entropy=self.entropy,
            aborts=self.aborts,
        )

    def open(self, client: AsyncClient) -> AsyncProducer:
        return AsyncProducer(client, self.settings)

    def stream(self, host: ClientHost, writes: Writes) -> Stream:
        return Stream(host.name, writes.all())

    async def _one_by_one(self, host: ClientHost) -> None:
        # Send rounds outside transactions. A failed record ends the life, so that order is kept.
        writes = Writes(self.context.world.kernel)
        try:
            async with host.client() as client, self.open(client) as producer:
                producer.on_outcome = writes.add_outcome
                while not host.stopping:
                    await self.send_records(client, producer, writes)
                    await producer.flush()
                    await host.pause(self.entropy, 2 * self.workload.pause_ms)
        finally:
            self.context.recorder.streams.append(self.stream(host, writes))

    async def _in_transactions(self, host: ClientHost) -> None:
        settings = TransactionSettings(self.name, timeout_ms=self.timeout_ms)
        async with host.client() as client, AsyncTransactionalProducer(client, settings, self.settings) as producer:
            await producer.initialize()
            while not host.stopping:
                await self.run_transaction(host, client, producer)
                await host.pause(self.entropy, 2 * self.workload.pause_ms)
