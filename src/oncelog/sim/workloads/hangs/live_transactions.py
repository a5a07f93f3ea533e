"""Live programs among hanging transactions: old, slow or paused transactions, prepared ones, and offset commits.

Old ones have records with yesterday's timestamps; an administrator that ends one tears it. The lone offset committer
reads each offset back (W16, H17), since members of groups commit rarely; here the power fails more often between a
commit and its sync.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from oncelog.base.ids import TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.aio.transactions import AsyncTransactionalProducer
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.offsets import Committed, GroupMetadata
from oncelog.client.machine.positions import FetchSettings
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.client.programs.group import committed_offsets
from oncelog.sim.checkers.history import Commit, GroupPartition, Write
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.hangs.ground_truth import GroundTruth
from oncelog.sim.workloads.kit.group_members import record_seek
from oncelog.sim.workloads.kit.recorder import Writes
from oncelog.sim.workloads.kit.scripted_producer import DAY_MS
from oncelog.sim.workloads.kit.sender import SETTINGS, run_transaction, send_write
from oncelog.sim.workloads.kit.workload import WorkloadContext
from oncelog.sim.workloads.two_phase_committers import Committer, Committers
from oncelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

TIMEOUT_MS: Final = 40_000
EARLIEST: Final = -2


class SlowTransactions:
    """Long transactions of old records; most are committed."""

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
                await run_transaction(
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
    """Prepares a transaction and keeps it until the final verdict, or forever."""

    def __init__(
        self, context: WorkloadContext, workload: Committers, name: str, truth: GroundTruth, *, for_ever: bool
    ) -> None:
        super().__init__(context, workload, name)
        self.truth = truth
        self.for_ever = for_ever

    async def __call__(self, host: ClientHost) -> None:
        if (
            self.for_ever
            and (open_transaction := self.workload.open_of(self.name)) is not None
            and open_transaction.prepared
        ):
            return
        try:
            await super().__call__(host)
        except _LeftPrepared:
            return

    async def hold(self, host: ClientHost) -> None:
        if self.for_ever:
            raise _LeftPrepared
        while not self.truth.judged:
            await host.sleep(500)


class _LeftPrepared(Exception):
    """Raised to leave a transaction prepared forever."""


class Reader:
    """Reads committed records from the start, and records them: hanging records are never among them."""

    def __init__(self, context: WorkloadContext, places: Sequence[TopicPartition]) -> None:
        self.context = context
        self.places = places

    async def __call__(self, host: ClientHost) -> None:
        fetch = FetchSettings(max_wait_ms=250, read_committed=True, partition_max_bytes=10_000)
        async with host.client() as client, AsyncConsumer(client, fetch) as consumer:
            positions = await consumer.list_offsets(dict.fromkeys(self.places, EARLIEST))
            for place in self.places:
                record_seek(self.context, host.name, place, read_committed=True)
            await consumer.assign(positions)
            while not host.stopping:
                for fetched in await consumer.poll(250):
                    self.context.recorder.polled(host.name, fetched, read_committed=True)
                await host.sleep(100)


# Names topics by name.
VERSION: Final = 8


class OffsetCommitter:
    def __init__(self, context: WorkloadContext, group: str, place: TopicPartition) -> None:
        self.context = context
        self.key = GroupPartition(group, place)
        self.entropy = context.entropy(group)
        self.count = 0

    async def __call__(self, host: ClientHost) -> None:
        async with host.client() as client:
            while not host.stopping:
                await committed_offsets(client, self.key.group, [self.key.partition], require_stable=True)
                for _ in range(self.entropy.randint(1, 10)):
                    await self.commit(client)
                    await host.sleep(self.entropy.randint(1, 100))

    async def commit(self, client: AsyncClient) -> None:
        # Commit the next offset, with a history entry made before the request.
        commits, kernel = self.context.recorder.commits, self.context.world.kernel
        self.count += 1
        index, commit = len(commits), Commit(self.key, self.count, kernel.now_us, None)
        commits.append(commit)
        place = self.key.partition
        partition_request = OffsetCommitRequestPartition(partition_index=place.partition, committed_offset=self.count)
        topic = OffsetCommitRequestTopic(name=place.topic, partitions=[partition_request])
        request = OffsetCommitRequest(group_id=self.key.group, topics=[topic])
        link = await client.link(await client.coordinator(self.key.group))
        code = (await link.call(request, VERSION)).topics[0].partitions[0].error_code
        if code:
            raise BrokerRefused(code, "OffsetCommit")
        commits[index] = commit._replace(answered_at=kernel.now_us)
