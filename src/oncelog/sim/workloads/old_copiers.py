"""Old copiers: no ``require_stable``, no generation, and transactions of the protocol before KIP-447.

They work like aiokafka, kafka-python, KafkaJS and librdkafka with unstable offsets: a restarted copier continues from
its group's offset (OffsetFetch 1 to 6), which it fetches before it initialises its producer, and copies with
TxnOffsetCommit 2 and EndTxn 4. Each partition has one copier with its own transactional id, so offsets rise in the
order of commits: after an acknowledged commit, no response may be lower (H21). Copies need not be exactly-once: a
copier that fetches offsets before it fences its former life may miss a commit without a response, by Kafka's design.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.client.machine.offsets import committed_in, offset_fetch_request
from oncelog.client.machine.positions import FetchSettings
from oncelog.sim.checkers.history import GroupPartition, OffsetCommitted, OffsetRead, SeenRecord, Transaction
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.scripted_producer import ScriptedProducer
from oncelog.sim.workloads.kit.workload import Topic, Workload, WorkloadContext, WorkloadProgram
from oncelog.sim.workloads.producers import Producers

# OffsetFetch versions with topic names and one group, without `require_stable`.
OLD_VERSIONS: Final = (1, 3, 5, 6)
# Has neither member nor generation.
OLD_TXN_OFFSET_COMMIT: Final = 2
FETCH: Final = FetchSettings(max_wait_ms=250, read_committed=True, partition_max_bytes=4_000)
TIMEOUT_MS: Final = 15_000


@dataclass(frozen=True, slots=True)
class OldCopiers(Workload):
    """A copier for each partition of ``writers``, and ``monitors`` that fetch the group's offsets."""

    name: str
    writers: Producers
    monitors: int
    pause_ms: int

    @classmethod
    def draw(cls, name: str, entropy: random.Random, transaction_version: int) -> OldCopiers:
        writers = replace(Producers.draw(name, entropy, transaction_version), producers=1)
        return cls(name, writers, entropy.randint(1, 2), entropy.choice((20, 60, 120)))

    @property
    def target(self) -> TopicName:
        return TopicName(f"{self.name}-out")

    def topics(self) -> list[Topic]:
        return [*self.writers.topics(), Topic(self.target, 1)]

    def start(self, context: WorkloadContext) -> None:
        self.writers.start(context)
        for index in range(self.writers.partitions):
            name = f"{self.name}-old{index}"
            source = TopicPartition(TopicName(self.name), index)
            context.supervise(name, _OldCopier(context, self, name, source))
        for index in range(self.monitors):
            name = f"{self.name}-monitor{index}"
            context.launch(name, self, _Monitor)


class _OldCopier(WorkloadProgram[OldCopiers]):
    """Copies one partition from the group's offset, in one transaction after another."""

    def __init__(self, context: WorkloadContext, workload: OldCopiers, name: str, source: TopicPartition) -> None:
        super().__init__(context, workload, name)
        self.source = source
        self.count = 0

    async def __call__(self, host: ClientHost) -> None:
        async with host.client() as client, AsyncConsumer(client, FETCH) as consumer:
            group = self.workload.name
            offsets = await read_offsets(
                self.context, client, group, [self.source], version=self.entropy.choice(OLD_VERSIONS)
            )
            await client.topic(self.workload.target)
            producer = ScriptedProducer(self.context, host, client, self.name, timeout_ms=TIMEOUT_MS)
            await producer.initialise()
            await consumer.assign({self.source: max(offsets[self.source], 0)})
            until_ms = host.now_ms + self.entropy.randint(2_000, 20_000)
            while not host.stopping:
                for fetched in await consumer.poll(250):
                    records = self.context.recorder.polled(host.name, fetched, read_committed=True)
                    await self.run_transaction(host, producer, records, fetched.next_offset)
                if host.now_ms >= until_ms:
                    raise ClientError("the copier is restarted")
                await host.pause(self.entropy, 2 * self.workload.pause_ms)

    async def run_transaction(
        self, host: ClientHost, producer: ScriptedProducer, records: list[SeenRecord], next_offset: int
    ) -> None:
        """Commit copies of the records with the next offset. Raises ClientError, which ends this life."""
        if not records:
            return
        recorder, kernel = self.context.recorder, self.context.world.kernel
        target, name = TopicPartition(self.workload.target, 0), f"{host.name}@{kernel.now_us}"
        producer.begin()
        try:
            await producer.add([target])
            for record in records:
                self.count += 1
                await producer.write(target, f"{host.name}#{self.count}|{record.value}")
            await producer.add_offsets(self.workload.name)
            await self._commit_offset(producer, next_offset)
            await producer.end(commit=True)
            key = GroupPartition(self.workload.name, self.source)
            recorder.offsets_committed.append(OffsetCommitted(key, next_offset, kernel.now_us))
            await producer.completed()
        finally:
            recorder.transactions.append(
                Transaction(name, host.name, producer.writes, producer.outcome, producer.ending_at)
            )

    async def _commit_offset(self, producer: ScriptedProducer, offset: int) -> None:
        code = await producer.commit_offset(self.workload.name, self.source, offset, OLD_TXN_OFFSET_COMMIT)
        if code:
            raise BrokerRefused(code, "TxnOffsetCommit")


class _Monitor(WorkloadProgram[OldCopiers]):
    """Fetches the group's offsets again and again, in every old version."""

    async def __call__(self, host: ClientHost) -> None:
        partitions = self.workload.topics()[0].topic_partitions
        async with host.client() as client:
            while not host.stopping:
                version = self.entropy.choice(OLD_VERSIONS)
                try:
                    await read_offsets(self.context, client, self.workload.name, partitions, version=version)
                except ClientError:  # the broker is down, or its coordinator is loading: retry soon
                    await host.pause(self.entropy, 20)
                else:
                    await host.pause(self.entropy, 100)


async def read_offsets(
    context: WorkloadContext,
    client: AsyncClient,
    group: str,
    partitions: Iterable[TopicPartition],
    *,
    version: int,
) -> dict[TopicPartition, int]:
    """Fetch and record the group's committed offsets, −1 for none."""
    partitions, kernel = list(partitions), context.world.kernel
    request = offset_fetch_request(group, partitions, require_stable=False)
    link = await client.link(await client.coordinator(group))
    requested_at = kernel.now_us
    committed = committed_in(await link.call(request, version), group)
    offsets = {partition: committed[partition].offset if partition in committed else -1 for partition in partitions}
    context.recorder.offset_reads.extend(
        OffsetRead(GroupPartition(group, partition), offset, requested_at, version)
        for partition, offset in offsets.items()
    )
    return offsets
