"""Live transactions that look like hanging ones: old, slow, paused, or prepared and left.

Old ones say in their records that they are from yesterday. Whoever touches one tears it, and the history tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from oncelog.base.ids import TopicPartition
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.aio.transactions import AsyncTransactionalProducer
from oncelog.client.machine.offsets import Committed, GroupMetadata
from oncelog.client.machine.positions import FetchSettings
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.sim.checkers.history import GroupPartition, Write
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.hangs.ground_truth import GroundTruth
from oncelog.sim.workloads.kit.group_members import note_seek
from oncelog.sim.workloads.kit.recorder import Writes
from oncelog.sim.workloads.kit.scripted_producer import DAY_MS
from oncelog.sim.workloads.kit.sender import SETTINGS, one_transaction, send_write
from oncelog.sim.workloads.kit.workload import WorkloadContext
from oncelog.sim.workloads.two_phase_committers import Committer, Committers

TIMEOUT_MS: Final = 40_000
EARLIEST: Final = -2


class SlowTransactions:
    """Transactions that last for long and write now and then, with old records; most are committed."""

    def __init__(self, context: WorkloadContext, name: str, places: Sequence[TopicPartition]) -> None:
        self.context = context
        self.name = name
        self.places = places
        self.entropy = context.entropy(name)
        self.count = 0

    async def __call__(self, host: ClientHost) -> None:
        settings = TransactionSettings(self.name, timeout_ms=TIMEOUT_MS)
        async with host.client() as client, AsyncTransactionalProducer(client, settings, SETTINGS) as producer:
            await producer.initialize()
            while not host.stopping:
                offsets: dict[GroupPartition, int] = {}
                await one_transaction(
                    self.context,
                    host,
                    producer,
                    partial(self.slow, host, producer, offsets),
                    entropy=self.entropy,
                    aborts=0.1,
                    offsets=offsets,
                )

    async def slow(
        self,
        host: ClientHost,
        producer: AsyncTransactionalProducer,
        offsets: dict[GroupPartition, int],
        writes: Writes,
    ) -> None:
        """An offset (the number of the next record), a record, a pause, a record …"""
        offsets[GroupPartition(self.name, self.places[0])] = self.count + 1
        await producer.send_offsets({self.places[0]: Committed(self.count + 1)}, GroupMetadata(self.name))
        for _ in range(self.entropy.randint(2, 12)):
            self.count += 1
            value, place = f"{self.name}/{self.count}", self.entropy.choice(self.places)
            timestamp_ms = host.now_ms - self.entropy.choice((0, DAY_MS))
            await send_write(producer, writes, Write(place, value), timestamp_ms)
            await producer.flush()
            if host.stopping:
                return
            await host.sleep(self.entropy.randint(1, 4_000))


class Keeper(Committer):
    """Prepares a transaction and lets it be: until all has been judged, or for ever."""

    def __init__(
        self, context: WorkloadContext, workload: Committers, name: str, truth: GroundTruth, *, for_ever: bool
    ) -> None:
        super().__init__(context, workload, name)
        self.truth = truth
        self.for_ever = for_ever

    async def __call__(self, host: ClientHost) -> None:
        if self.for_ever and (left := self.workload.open_of(self.name)) is not None and left.prepared:
            return
        try:
            await super().__call__(host)
        except _Left:
            return

    async def hold(self, host: ClientHost) -> None:
        """Hold the transaction for as long as it takes."""
        if self.for_ever:
            raise _Left
        while not self.truth.judged:
            await host.sleep(500)


class _Left(Exception):
    """Raised to leave a transaction prepared for ever."""


class Reader:
    """Reads committed records from the beginning, and writes them down: what hangs is never among them."""

    def __init__(self, context: WorkloadContext, places: Sequence[TopicPartition]) -> None:
        self.context = context
        self.places = places

    async def __call__(self, host: ClientHost) -> None:
        fetch = FetchSettings(max_wait_ms=250, read_committed=True, partition_max_bytes=10_000)
        async with host.client() as client, AsyncConsumer(client, fetch) as consumer:
            positions = await consumer.list_offsets(dict.fromkeys(self.places, EARLIEST))
            for place in self.places:
                note_seek(self.context, host.name, place, read_committed=True)
            await consumer.assign(positions)
            while not host.stopping:
                for fetched in await consumer.poll(250):
                    self.context.recorder.polled(host.name, fetched, read_committed=True)
                await host.sleep(100)
