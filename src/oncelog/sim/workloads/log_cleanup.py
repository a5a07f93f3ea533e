"""Logs that are cleaned while clients use them: compaction with tombstones, retention by time, DeleteRecords."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.sim.checkers.history import StartSeen, Trim, Write
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.group_members import record_seek
from oncelog.sim.workloads.kit.reader import POLL_MS, ReadingProgram
from oncelog.sim.workloads.kit.requests import delete_records
from oncelog.sim.workloads.kit.sender import SendingProgram
from oncelog.sim.workloads.kit.workload import Topic, Workload, WorkloadContext, WorkloadProgram

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
class LogCleanup(Workload):
    """One topic whose log loses records by ``policy``, with producers and readers."""

    name: str
    policy: str
    partitions: int
    producers: int
    transactional: bool
    keys: int
    pause_ms: int

    @classmethod
    def draw(cls, name: str, entropy: random.Random, transaction_version: int) -> LogCleanup:
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
        return [Topic(self.name, self.partitions, POLICIES[self.policy])]

    def start(self, context: WorkloadContext) -> None:
        recorder = context.recorder
        if self.policy == "compact":
            recorder.compacted.add(self.name)
        elif self.policy == "expire":
            recorder.expiring.add(self.name)
            recorder.retained_for[self.name] = int(EXPIRING["retention.ms"]) * 1_000
        else:
            context.launch(f"{self.name}-trim", self, _Trimming)
        context.launch(f"{self.name}-read", self, _Reading)
        for index in range(self.producers):
            context.launch(f"{self.name}-{index}", self, _Sending)


class _Trimming(WorkloadProgram[LogCleanup]):
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


class _Reading(ReadingProgram[LogCleanup]):
    async def __call__(self, host: ClientHost) -> None:
        read_committed = self.entropy.random() < 0.5
        fetch = FetchSettings(max_wait_ms=POLL_MS, read_committed=read_committed, partition_max_bytes=3_000)
        async with host.client() as client:
            while not host.stopping:
                until_ms = host.now_ms + self.entropy.randint(2_000, 30_000)
                async with AsyncConsumer(client, fetch) as consumer:
                    positions = await consumer.list_offsets(dict.fromkeys(self.partitions, -2))
                    self.record_log_starts(host, positions)
                    for partition in self.partitions:
                        record_seek(self.context, host.name, partition, read_committed=read_committed)
                    await consumer.assign(positions)
                    await self.read(host, consumer, until_ms=until_ms, read_committed=read_committed)

    def record_log_starts(self, host: ClientHost, starts: Mapping[TopicPartition, int]) -> None:
        # Record the log starts: retention must not have deleted young records.
        # Retention goes by the brokers' clocks.
        ahead_ms = max(0, *(broker.machine.clock_ms for broker in host.world.brokers))
        latest_time_us = host.world.kernel.now_us + ahead_ms * 1_000
        self.context.recorder.starts_seen.extend(
            StartSeen(partition, offset, latest_time_us) for partition, offset in starts.items()
        )

    def is_over(self, refused: Fetched) -> bool:
        return refused.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or super().is_over(refused)


class _Sending(SendingProgram[LogCleanup]):
    """Records with keys; on compacted topics some are tombstones with the value in a header."""

    aborts = 0.25
    most_records = 6

    async def draw_write(self, client: AsyncClient) -> Write:
        number, value = self.entropy.randrange(self.workload.keys), self.next_value()
        tombstone = self.workload.policy == "compact" and self.entropy.random() < 0.1
        partition = self.partition(number % self.workload.partitions)
        return Write(partition, value, key=f"k{number}", tombstone=tombstone)
