"""Logs that are cleaned while clients work on them: compaction with tombstones, retention by time, DeleteRecords."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.aio.producer import AsyncProducer
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.sim.checkers.history import StartSeen, Trim, Write
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.admin_requests import delete_records
from oncelog.sim.workloads.kit.group_members import note_seek
from oncelog.sim.workloads.kit.reader import POLL_MS, ReadingProgram
from oncelog.sim.workloads.kit.recorder import TOMBSTONE_HEADER, Writes
from oncelog.sim.workloads.kit.sender import SendingProgram
from oncelog.sim.workloads.kit.workload import Topic, WorkloadContext

COMPACTED: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "3000",
    "segment.ms": "2000",
}
EXPIRING: Final = {"retention.ms": "15000", "segment.ms": "3000"}
TRIMMED: Final = {"segment.ms": "1000"}
POLICIES: Final[Mapping[str, Mapping[str, str]]] = {"compact": COMPACTED, "expire": EXPIRING, "trim": TRIMMED}


@dataclass(frozen=True, slots=True)
class LogCleanup:
    """One topic whose log loses records by ``policy``, with producers and readers."""

    name: str
    policy: str
    partitions: int
    producers: int
    transactional: bool
    keys: int
    pause_ms: int
    leaves_open: ClassVar[bool] = False

    @classmethod
    def draw(cls, name: str, entropy: random.Random, transaction_version: int) -> LogCleanup:
        """Draw one by chance."""
        return cls(
            name,
            entropy.choice(("compact", "compact", "expire", "trim")),
            entropy.randint(1, 3),
            entropy.randint(1, 2),
            entropy.random() < 0.5,
            entropy.choice((3, 20, 200)),
            entropy.choice((50, 100, 200)),
        )

    def topics(self) -> list[Topic]:
        """One."""
        return [Topic(self.name, self.partitions, POLICIES[self.policy])]

    def start(self, context: WorkloadContext) -> None:
        """Producers, a reader, and whoever deletes records."""
        recorder = context.recorder
        if self.policy == "compact":
            recorder.compacted.add(self.name)
        elif self.policy == "expire":
            recorder.expiring.add(self.name)
            recorder.retained_for[self.name] = int(EXPIRING["retention.ms"]) * 1_000
        else:
            context.supervise(f"{self.name}-trim", _Trimming(context, self))
        context.supervise(f"{self.name}-read", _Reading(context, self.name, self.partitions))
        for index in range(self.producers):
            context.supervise(f"{self.name}-{index}", _Sending(context, self, f"{self.name}-{index}"))

    async def record_final_state(self, context: WorkloadContext, client: AsyncClient) -> None:
        """Record nothing: only the records count."""


class _Trimming:
    """DeleteRecords up to somewhere, now and then."""

    def __init__(self, context: WorkloadContext, workload: LogCleanup) -> None:
        self.context = context
        self.workload = workload
        self.entropy = context.entropy(f"{workload.name}-trim")

    async def __call__(self, host: ClientHost) -> None:
        entropy, work, trims = self.entropy, self.workload, self.context.recorder.trims
        async with host.client() as client, AsyncConsumer(client) as consumer:
            while not host.stopping:
                await host.sleep(entropy.randint(1, 8_000))
                partition = TopicPartition(TopicName(work.name), entropy.randrange(work.partitions))
                end = (await consumer.list_offsets({partition: -1}))[partition]
                before, index = entropy.randint(0, end), len(trims)
                trims.append(Trim(partition, before, False))
                try:
                    await delete_records(client, partition, before)
                except BrokerRefused as error:
                    if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                        raise
                else:
                    trims[index] = Trim(partition, before, True)


class _Reading(ReadingProgram):
    """Reads on, and starts over where its offset is gone, and now and then just so."""

    async def __call__(self, host: ClientHost) -> None:
        isolated = self.entropy.random() < 0.5
        fetch = FetchSettings(max_wait_ms=POLL_MS, read_committed=isolated, partition_max_bytes=3_000)
        async with host.client() as client:
            while not host.stopping:
                until_ms = host.now_ms + self.entropy.randint(2_000, 30_000)
                async with AsyncConsumer(client, fetch) as consumer:
                    positions = await consumer.list_offsets(dict.fromkeys(self.partitions, -2))
                    self.note_starts(host, positions)
                    for partition in self.partitions:
                        note_seek(self.context, host.name, partition, read_committed=isolated)
                    await consumer.assign(positions)
                    await self.read(host, consumer, until_ms=until_ms, read_committed=isolated)

    def note_starts(self, host: ClientHost, starts: Mapping[TopicPartition, int]) -> None:
        """Note where the logs begin: retention may not have taken what is young."""
        ahead_ms = max(0, *(broker.machine.clock_ms for broker in host.world.brokers))
        at = host.world.kernel.now_us + ahead_ms * 1_000
        self.context.recorder.starts_seen.extend(StartSeen(one, offset, at) for one, offset in starts.items())

    def is_over(self, refused: Fetched) -> bool:
        """When its offset is gone."""
        return refused.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or super().is_over(refused)


class _Sending(SendingProgram):
    """Keyed records; on compacted topics some are tombstones, whose value is in a header."""

    aborts = 0.25

    def __init__(self, context: WorkloadContext, workload: LogCleanup, name: str) -> None:
        super().__init__(context, name, pause_ms=workload.pause_ms, transactional=workload.transactional)
        self.workload = workload

    async def send_some(self, client: AsyncClient, producer: AsyncProducer, writes: Writes) -> None:
        """A handful; a key stays in its partition."""
        work = self.workload
        for _ in range(self.entropy.randint(1, 6)):
            number = self.entropy.randrange(work.keys)
            key, value = f"k{number}", self.next_value()
            tombstone = work.policy == "compact" and self.entropy.random() < 0.1
            partition = TopicPartition(TopicName(work.name), number % work.partitions)
            writes.sending(Write(partition, value, key=key, tombstone=tombstone))
            await producer.send(
                partition.topic,
                None if tombstone else value.encode(),
                key=key.encode(),
                partition=partition.partition,
                headers=((TOMBSTONE_HEADER, value.encode()),) if tombstone else (),
            )
