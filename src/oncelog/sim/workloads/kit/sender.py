"""Programs that send, outside of transactions or in them: what producing workloads share.

A program is opened again after each death, and its values never repeat over all its lives. What it sends is up to the
workload, see :meth:`Sending.send_some`; that all of it gets into the history is seen to here.
"""

from __future__ import annotations

from typing import ClassVar, Final

from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.producer import AsyncProducer
from oncelog.client.aio.transactions import AsyncTransactionalProducer
from oncelog.client.machine.producer import ProducerSettings
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.sim.checkers.history import Stream
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.recorder import Writes
from oncelog.sim.workloads.kit.transaction import one_transaction
from oncelog.sim.workloads.kit.workload import WorkloadContext

SETTINGS: Final = ProducerSettings(delivery_timeout_ms=20_000)


class SendingProgram:
    """Rounds of records with pauses between them; with ``transactional`` each is a transaction."""

    settings: ProducerSettings = SETTINGS
    aborts: ClassVar[float] = 0.2
    """Probability that a transaction is aborted."""
    timeout_ms: int = 10_000
    """The time-out of a transaction."""

    def __init__(self, context: WorkloadContext, name: str, *, pause_ms: int, transactional: bool = False) -> None:
        self.context = context
        self.name = name
        self.entropy = context.entropy(name)
        self._pause_ms = pause_ms
        self._transactional = transactional
        self._count = 0

    async def __call__(self, host: ClientHost) -> None:
        await (self._in_transactions(host) if self._transactional else self._one_by_one(host))

    def next_value(self) -> str:
        """One that no record has had."""
        self._count += 1
        return f"{self.name}/{self._count}"

    # What a workload may say otherwise.

    async def send_some(self, client: AsyncClient, producer: AsyncProducer, writes: Writes) -> None:
        """A handful of records, each noted in ``writes`` before it is sent."""
        raise NotImplementedError

    async def fill(
        self, host: ClientHost, client: AsyncClient, producer: AsyncTransactionalProducer, writes: Writes
    ) -> None:
        """Send the records of one transaction."""
        await self.send_some(client, producer, writes)

    async def one_transaction(
        self, host: ClientHost, client: AsyncClient, producer: AsyncTransactionalProducer
    ) -> None:
        """Run one transaction from begin to end."""
        await one_transaction(
            self.context,
            host,
            producer,
            lambda writes: self.fill(host, client, producer, writes),
            entropy=self.entropy,
            aborts=self.aborts,
        )

    def open(self, client: AsyncClient) -> AsyncProducer:
        """The producer outside of transactions."""
        return AsyncProducer(client, self.settings)

    def stream(self, host: ClientHost, writes: Writes) -> Stream:
        """The stream of one life outside of transactions, for the history."""
        return Stream(host.name, writes.all())

    # The two kinds.

    async def _one_by_one(self, host: ClientHost) -> None:
        """Each record once, in order, or a failure that says so."""
        writes = Writes(self.context.world.kernel)
        try:
            async with host.client() as client, self.open(client) as producer:
                producer.on_outcome = writes.take
                while not host.stopping:
                    await self.send_some(client, producer, writes)
                    await producer.flush()
                    await self._pause(host)
        finally:
            self.context.recorder.streams.append(self.stream(host, writes))

    async def _in_transactions(self, host: ClientHost) -> None:
        """One transaction after another."""
        settings = TransactionSettings(self.name, timeout_ms=self.timeout_ms)
        async with host.client() as client, AsyncTransactionalProducer(client, settings, self.settings) as producer:
            await producer.initialize()
            while not host.stopping:
                await self.one_transaction(host, client, producer)
                await self._pause(host)

    async def _pause(self, host: ClientHost) -> None:
        await host.pause(self.entropy, 2 * self._pause_ms)
