"""Consume, transform, produce: copies every record of one topic exactly once into another, despite crashes (KIP-447).

Copiers are members of one group, whose generation fences zombies, each with its own transactional id. Or each id has
fixed partitions, and its epoch fences. The value of a copy names its source record, for H19.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.aio.transactions import AsyncTransactionalProducer
from oncelog.client.errors import ProducerFenced
from oncelog.client.machine.offsets import Committed, GroupMetadata
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.client.programs.group import committed_offsets
from oncelog.client.programs.group_protocol import GroupProtocol
from oncelog.sim.checkers.history import Copied, GroupPartition, SeenRecord, Write
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.group_members import (
    GROUP_PROTOCOLS,
    MEMBER,
    RecordedMember,
    counting_client,
    record_group_offsets,
    record_seek,
)
from oncelog.sim.workloads.kit.recorder import Writes
from oncelog.sim.workloads.kit.sender import SETTINGS, run_transaction, send_write
from oncelog.sim.workloads.kit.workload import Topic, Workload, WorkloadContext, WorkloadProgram
from oncelog.sim.workloads.producers import Producers

FETCH = FetchSettings(max_wait_ms=250, read_committed=True, partition_max_bytes=4_000)


@dataclass(frozen=True, slots=True)
class Copiers(Workload):
    """``copiers`` programs that copy the records of ``writers``; ``in_group``: as members of a group."""

    name: str
    writers: Producers
    copiers: int
    in_group: bool
    targets: int
    pause_ms: int
    # The protocols that members may use; each life of a member draws one.
    protocols: tuple[GroupProtocol, ...] = ("classic",)

    @classmethod
    def draw(cls, name: str, entropy: random.Random, transaction_version: int) -> Copiers:
        writers = replace(Producers.draw(name, entropy, transaction_version), producers=1)
        copiers, in_group = entropy.randint(1, 3), entropy.random() < 0.6
        targets, pause_ms = entropy.randint(1, 3), entropy.choice((20, 60, 120))
        return cls(name, writers, copiers, in_group, targets, pause_ms, entropy.choice(GROUP_PROTOCOLS))

    @property
    def target(self) -> TopicName:
        return TopicName(f"{self.name}-out")

    def topics(self) -> list[Topic]:
        return [*self.writers.topics(), Topic(self.target, self.targets)]

    def start(self, context: WorkloadContext) -> None:
        """Start the writers, and a program per copier. Without a group, two compete for the first transactional id."""
        self.writers.start(context)
        context.recorder.followed_groups.add(self.name)
        context.recorder.copies.append(Copied(self.name, self.target, self.name))
        for index in range(self.copiers):
            name = f"{self.name}-c{index}"
            if self.in_group:
                context.supervise(name, _MemberCopies(context, self, name, index))
            else:
                context.supervise(name, _AssignedCopies(context, self, name, index))
                if index == 0:
                    context.supervise(f"{name}-twin", _AssignedCopies(context, self, f"{name}-twin", index))

    async def record_final_state(self, context: WorkloadContext, client: AsyncClient) -> None:
        await record_group_offsets(context, client, self.name)


class _Copies(WorkloadProgram[Copiers]):
    def __init__(self, context: WorkloadContext, workload: Copiers, name: str, index: int) -> None:
        super().__init__(context, workload, name)
        self.index = index
        self.count = 0
        self.settings = TransactionSettings(f"{workload.name}-copier-{index}", timeout_ms=15_000)

    async def __call__(self, host: ClientHost) -> None:
        raise NotImplementedError

    async def copy(
        self,
        host: ClientHost,
        producer: AsyncTransactionalProducer,
        group: GroupMetadata,
        polled: Iterable[tuple[Fetched, list[SeenRecord]]],
    ) -> bool:
        """Copy the records and their offsets in one transaction. Returns True if it was committed; raises
        fatal errors.
        """
        offsets = {fetched.partition: fetched.next_offset for fetched, _ in polled}

        async def fill(writes: Writes) -> None:
            for fetched, records in polled:
                await self._send(host, producer, writes, fetched.partition, records)
            await self.maybe_sleep(host)
            await producer.send_offsets({p: Committed(offset) for p, offset in offsets.items()}, group)
            await self.maybe_sleep(host)

        return await run_transaction(
            self.context,
            host,
            producer,
            fill,
            entropy=self.entropy,
            aborts=0.15,
            offsets={GroupPartition(self.workload.name, p): offset for p, offset in offsets.items()},
        )

    async def maybe_sleep(self, host: ClientHost) -> None:
        # Sleep now and then, long enough for others to take over.
        if self.entropy.random() < 0.02 and not host.stopping:
            await host.sleep(self.entropy.randint(0, 3 * MEMBER.rebalance_timeout_ms))

    async def _send(
        self,
        host: ClientHost,
        producer: AsyncTransactionalProducer,
        writes: Writes,
        source: TopicPartition,
        records: list[SeenRecord],
    ) -> None:
        for record in records:
            self.count += 1
            value = f"{host.name}#{self.count}|{record.value}"
            target = TopicPartition(self.workload.target, (source.partition + record.offset) % self.workload.targets)
            await send_write(producer, writes, Write(target, value))


class _MemberCopies(_Copies):
    """A member of the group, which rewinds after an aborted transaction."""

    async def __call__(self, host: ClientHost) -> None:
        topic, lives = self.workload.name, 0
        async with (
            counting_client(host) as client,
            AsyncTransactionalProducer(client, self.settings, SETTINGS) as producer,
        ):
            await producer.initialize()
            while not host.stopping:
                lives += 1
                name = f"{host.name}/{lives}"
                until_ms = host.now_ms + self.entropy.randint(3_000, 40_000)
                protocol = self.entropy.choice(self.workload.protocols)
                async with RecordedMember(
                    self.context, client, name, topic, [topic], fetch=FETCH, protocol=protocol
                ) as member:
                    while not host.stopping and host.now_ms < until_ms:
                        await self.run_round(host, producer, member)
                        await host.pause(self.entropy, 2 * self.workload.pause_ms)

    async def run_round(self, host: ClientHost, producer: AsyncTransactionalProducer, member: RecordedMember) -> None:
        polled = [(fetched, member.record_fetched(fetched)) for fetched in await member.poll(250)]
        if polled and not await self.copy(host, producer, member.group_metadata, polled):
            member.seek({fetched.partition: fetched.position for fetched, _ in polled})


class _AssignedCopies(_Copies):
    """Copies every ``copiers``-th partition. A fenced copier takes over again later."""

    async def __call__(self, host: ClientHost) -> None:
        try:
            await self.copy_all(host)
        except ProducerFenced:
            await host.sleep(1 if host.stopping else self.entropy.randint(5_000, 20_000))
            raise

    async def copy_all(self, host: ClientHost) -> None:
        # Take over, start at the committed offsets, and copy.
        work = self.workload
        owned = [
            TopicPartition(TopicName(work.name), index)
            for index in range(self.index, work.writers.partitions, work.copiers)
        ]
        async with (
            host.client() as client,
            AsyncTransactionalProducer(client, self.settings, SETTINGS) as producer,
            AsyncConsumer(client, FETCH) as consumer,
        ):
            await producer.initialize()
            await self._start_at_committed(client, consumer, host, owned)
            while not host.stopping:
                polled = []
                for fetched in await consumer.poll(250):
                    records = self.context.recorder.polled(host.name, fetched, read_committed=True, group=work.name)
                    polled.append((fetched, records))
                if polled and not await self.copy(host, producer, GroupMetadata(work.name), polled):
                    self._rewind(host, consumer, {fetched.partition: fetched.position for fetched, _ in polled})
                await host.pause(self.entropy, 2 * work.pause_ms)

    async def _start_at_committed(
        self, client: AsyncClient, consumer: AsyncConsumer, host: ClientHost, owned: list[TopicPartition]
    ) -> None:
        committed = await committed_offsets(client, self.workload.name, owned, require_stable=True) if owned else {}
        await consumer.assign({p: committed[p].offset if p in committed else 0 for p in owned})

    def _rewind(self, host: ClientHost, consumer: AsyncConsumer, positions: dict[TopicPartition, int]) -> None:
        for partition in positions:
            record_seek(self.context, host.name, partition, read_committed=True, group=self.workload.name)
        consumer.seek(positions)
