"""Producers: idempotent ones outside transactions, and transactional ones that commit or abort randomly."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.transactions import AsyncTransactionalProducer
from oncelog.sim.checkers.history import Write
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.recorder import Writes
from oncelog.sim.workloads.kit.sender import SendingProgram
from oncelog.sim.workloads.kit.workload import Topic, Workload, WorkloadContext

# The longest pause within a transaction.
LONGEST_PAUSE_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Producers(Workload):
    """``producers`` programs that write to one topic; ``transactional``: in transactions."""

    name: str
    producers: int
    partitions: int
    pause_ms: int
    transactional: bool
    # The timeout of transactions, short enough to expire now and then.
    timeout_ms: int = 10_000

    @classmethod
    def draw(cls, name: str, entropy: random.Random, transaction_version: int) -> Producers:
        transactional = entropy.random() < 0.7
        timeout_ms = entropy.choice((2_000, 10_000, 60_000))
        pause_ms = entropy.choice((30, 80, 150))
        return cls(name, entropy.randint(1, 3), entropy.randint(1, 4), pause_ms, transactional, timeout_ms)

    def topics(self) -> list[Topic]:
        return [Topic(self.name, self.partitions)]

    def start(self, context: WorkloadContext) -> None:
        for index in range(self.producers):
            name = f"{self.name}-{index}"
            context.launch(name, self, _Sending)


class _Sending(SendingProgram[Producers]):
    """Some transactions exceed their timeout."""

    def __init__(self, context: WorkloadContext, workload: Producers, name: str) -> None:
        super().__init__(context, workload, name)
        self.timeout_ms = workload.timeout_ms

    async def draw_write(self, client: AsyncClient) -> Write:
        value = self.next_value()
        return Write(self.partition(self.entropy.randrange(self.workload.partitions)), value)

    async def fill(
        self, host: ClientHost, client: AsyncClient, producer: AsyncTransactionalProducer, writes: Writes
    ) -> None:
        await self.send_records(client, producer, writes)
        if self.entropy.random() < 0.02:
            await producer.flush()
            await host.sleep(self.entropy.randint(0, min(2 * self.timeout_ms, LONGEST_PAUSE_MS)))
