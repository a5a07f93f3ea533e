"""Producers that promise less, or send more: acks 0 and 1, retries without idempotence, large and compressed batches,
topics whose time the broker sets.

What was not acknowledged by all replicas is in the history as unknown, however it was answered.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.producer import AsyncProducer
from oncelog.client.machine.positions import FetchSettings
from oncelog.client.machine.producer import ProducerSettings
from oncelog.records.compression import Codec
from oncelog.sim.checkers.history import Outcome, Stream, Write
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.reader import POLL_MS, ReadingProgram
from oncelog.sim.workloads.kit.recorder import Writes
from oncelog.sim.workloads.kit.sender import SendingProgram
from oncelog.sim.workloads.kit.workload import Topic, WorkloadContext

BATCH_BYTES = 900_000


@dataclass(frozen=True, slots=True)
class PlainProducers:
    """``producers`` programs with one kind of acknowledgement, and a reader."""

    name: str
    producers: int
    partitions: int
    pause_ms: int
    acks: int
    codec: Codec
    most_bytes: int
    """The size of the largest value; the larger, the fewer."""
    append_time: bool
    recompressed: str
    """compression.type of the topic."""
    leaves_open: ClassVar[bool] = False

    @classmethod
    def draw(cls, name: str, entropy: random.Random, transaction_version: int) -> PlainProducers:
        """Draw one by chance."""
        return cls(
            name,
            entropy.randint(1, 3),
            entropy.randint(1, 3),
            entropy.choice((100, 200, 400)),
            entropy.choice((0, 1, 1, -1, -1)),
            entropy.choice(list(Codec)),
            entropy.choice((0, 200, 5_000)),
            entropy.random() < 0.4,
            entropy.choice(("producer", "producer", "producer", "uncompressed", "gzip", "lz4")),
        )

    def topics(self) -> list[Topic]:
        """One."""
        configs = {"compression.type": self.recompressed, "segment.bytes": "1048576"}
        if self.append_time:
            configs["message.timestamp.type"] = "LogAppendTime"
        return [Topic(self.name, self.partitions, configs)]

    def start(self, context: WorkloadContext) -> None:
        """A program for each."""
        if self.append_time or self.recompressed != "producer":
            context.recorder.rewritten.add(self.name)
        for index in range(self.producers):
            context.supervise(f"{self.name}-{index}", _Sending(context, self, f"{self.name}-{index}"))
        context.supervise(f"{self.name}-read", _Reading(context, self.name, self.partitions))

    async def record_final_state(self, context: WorkloadContext, client: AsyncClient) -> None:
        """Record nothing: only the records count."""


class _PlainProducer(AsyncProducer):
    """A producer without a producer id, whatever the acks."""

    def __init__(self, client: AsyncClient, settings: ProducerSettings) -> None:
        super().__init__(client, settings)
        self._idempotent = False


class _Sending(SendingProgram):
    """One batch a partition at a time: nothing else would keep the order of the answers."""

    def __init__(self, context: WorkloadContext, workload: PlainProducers, name: str) -> None:
        super().__init__(context, name, pause_ms=workload.pause_ms)
        self.workload = workload
        self.settings = ProducerSettings(
            batch_bytes=BATCH_BYTES, codec=workload.codec, acks=workload.acks, delivery_timeout_ms=20_000
        )

    def open(self, client: AsyncClient) -> AsyncProducer:
        """Make a producer without idempotence."""
        return _PlainProducer(client, self.settings)

    def stream(self, host: ClientHost, writes: Writes) -> Stream:
        """Less than acks=all is nothing to rely on."""
        return Stream(host.name, [self.as_known(write) for write in writes.all()], idempotent=False)

    async def send_some(self, client: AsyncClient, producer: AsyncProducer, writes: Writes) -> None:
        """A batch or two."""
        work, entropy = self.workload, self.entropy
        for _ in range(entropy.randint(1, 3 if work.most_bytes > 1_000 else 8)):
            size = entropy.randint(0, work.most_bytes)
            filling = entropy.choice((entropy.randbytes(size // 4).hex(), "x" * size))
            value = f"{self.next_value()}/{filling}"
            partition = TopicPartition(TopicName(work.name), entropy.randrange(work.partitions))
            writes.sending(Write(partition, value))
            await producer.send(partition.topic, value.encode(), partition=partition.partition)

    def as_known(self, write: Write) -> Write:
        """The write as far as its acknowledgement says something."""
        if self.workload.acks == -1 or write.outcome is not Outcome.COMMITTED:
            return write
        return write._replace(outcome=Outcome.UNKNOWN, offset=None)


class _Reading(ReadingProgram):
    """Reads all of it, a batch or everything at once."""

    def fetch(self) -> FetchSettings:
        """Settings for a Fetch, by chance."""
        return FetchSettings(max_wait_ms=POLL_MS, partition_max_bytes=self.entropy.choice((1, 5_000, 1_000_000)))
