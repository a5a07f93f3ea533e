"""Producers with weaker guarantees or larger batches. A write without an acks=all acknowledgement is in the history as
unknown.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.producer import AsyncProducer
from oncelog.client.machine.positions import FetchSettings
from oncelog.client.machine.producer import ProducerSettings
from oncelog.records.compression import Codec
from oncelog.sim.checkers.history import RecordedOutcome, Stream, Write
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.reader import POLL_MS, ReadingProgram
from oncelog.sim.workloads.kit.recorder import Writes
from oncelog.sim.workloads.kit.sender import SendingProgram
from oncelog.sim.workloads.kit.workload import Topic, Workload, WorkloadContext

BATCH_BYTES = 900_000


@dataclass(frozen=True, slots=True)
class PlainProducers(Workload):
    """``producers`` programs with one kind of acknowledgement, and a reader."""

    name: str
    producers: int
    partitions: int
    pause_ms: int
    acks: int
    codec: Codec
    # The largest size of a value; large ones come in small numbers.
    most_bytes: int
    append_time: bool
    # compression.type of the topic.
    recompressed: str

    @classmethod
    def draw(cls, name: str, entropy: random.Random, transaction_version: int) -> PlainProducers:
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

    @property
    def transactional(self) -> bool:
        return False

    def topics(self) -> list[Topic]:
        configs = {"compression.type": self.recompressed, "segment.bytes": "1048576"}
        if self.append_time:
            configs["message.timestamp.type"] = "LogAppendTime"
        return [Topic(self.name, self.partitions, configs)]

    def start(self, context: WorkloadContext) -> None:
        if self.append_time or self.recompressed != "producer":
            context.recorder.rewritten.add(self.name)
        for index in range(self.producers):
            context.launch(f"{self.name}-{index}", self, _Sending)
        context.launch(f"{self.name}-read", self, _Reading)


class _PlainProducer(AsyncProducer):
    """A producer without a producer id, for any acks."""

    def __init__(self, client: AsyncClient, settings: ProducerSettings) -> None:
        super().__init__(client, settings)
        self._idempotent = False


class _Sending(SendingProgram[PlainProducers]):
    """Sends one batch per partition at a time, so that responses come in order."""

    def __init__(self, context: WorkloadContext, workload: PlainProducers, name: str) -> None:
        super().__init__(context, workload, name)
        self.settings = ProducerSettings(
            batch_bytes=BATCH_BYTES, codec=workload.codec, acks=workload.acks, delivery_timeout_ms=20_000
        )
        self.most_records = 3 if workload.most_bytes > 1_000 else 8

    def open(self, client: AsyncClient) -> AsyncProducer:
        return _PlainProducer(client, self.settings)

    def stream(self, host: ClientHost, writes: Writes) -> Stream:
        # Acknowledgements below acks=all prove nothing.
        return Stream(host.name, [self.with_proven_outcome(write) for write in writes.all()], idempotent=False)

    async def draw_write(self, client: AsyncClient) -> Write:
        work, entropy = self.workload, self.entropy
        size = entropy.randint(0, work.most_bytes)
        filling = entropy.choice((entropy.randbytes(size // 4).hex(), "x" * size))
        value = f"{self.next_value()}/{filling}"
        return Write(self.partition(entropy.randrange(work.partitions)), value)

    def with_proven_outcome(self, write: Write) -> Write:
        if self.workload.acks == -1 or write.outcome is not RecordedOutcome.COMMITTED:
            return write
        return write._replace(outcome=RecordedOutcome.UNKNOWN, offset=None)


class _Reading(ReadingProgram[PlainProducers]):
    def fetch(self) -> FetchSettings:
        return FetchSettings(max_wait_ms=POLL_MS, partition_max_bytes=self.entropy.choice((1, 5_000, 1_000_000)))
