"""Batches that are rejected for good because they exceed a topic's limits, within a transaction or outside.

A rejected batch costs its transaction, which can only be aborted, and nothing else: the producer continues, outside
transactions under a bumped epoch (KIP-360), and the batch is never readable.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.producer import AsyncProducer
from oncelog.client.aio.transactions import AsyncTransactionalProducer
from oncelog.client.blocking.producer import DeliveryFailed
from oncelog.client.errors import OutOfTurn, ProducerFenced, ProducerUnusable
from oncelog.client.machine.pending_batch import BatchOutcome, Failed
from oncelog.client.machine.producer import ProducerSettings
from oncelog.sim.checkers.history import RecordedOutcome, Write
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.kit.reader import ReadingProgram
from oncelog.sim.workloads.kit.recorder import Writes
from oncelog.sim.workloads.kit.requests import alter_topic
from oncelog.sim.workloads.kit.sender import SendingProgram, send_write
from oncelog.sim.workloads.kit.workload import FENCED, Topic, Workload, WorkloadContext, WorkloadProgram

HOUR_MS: Final = 3_600_000
LEAST_MESSAGE_BYTES: Final = 1_000
# Errors for a batch whose transaction is over, or that follows a rejected one.
ENDED: Final = frozenset(
    {ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
)


class Limit(NamedTuple):
    """A topic's limit: its configuration, the error of a rejection, and True if it is set while producers send."""

    configs: Mapping[str, str]
    error: ErrorCode
    comes_late: bool = False


LIMITS: Final[Mapping[str, Limit]] = {
    "large": Limit({"max.message.bytes": str(LEAST_MESSAGE_BYTES)}, ErrorCode.MESSAGE_TOO_LARGE),
    "lowered": Limit({}, ErrorCode.MESSAGE_TOO_LARGE, comes_late=True),
    "early": Limit({"message.timestamp.after.max.ms": str(HOUR_MS)}, ErrorCode.INVALID_TIMESTAMP),
    "late": Limit({"message.timestamp.before.max.ms": str(HOUR_MS)}, ErrorCode.INVALID_TIMESTAMP),
    "keyless": Limit({"cleanup.policy": "compact"}, ErrorCode.INVALID_RECORD),
}


@dataclass(frozen=True, slots=True)
class RefusedBatches(Workload):
    """``producers`` programs that sometimes send records their topic rejects, and a reader."""

    name: str
    kind: str
    producers: int
    partitions: int
    pause_ms: int
    transactional: bool
    # Small: a rejected batch has later ones of its partition in flight.
    batch_bytes: int

    @classmethod
    def draw(cls, name: str, entropy: random.Random, transaction_version: int) -> RefusedBatches:
        return cls(
            name,
            entropy.choice(list(LIMITS)),
            entropy.randint(1, 2),
            entropy.randint(1, 3),
            entropy.choice((200, 400, 800)),
            entropy.random() < 0.75,
            entropy.choice((200, 10_000)),
        )

    @property
    def limit(self) -> Limit:
        return LIMITS[self.kind]

    def topics(self) -> list[Topic]:
        return [Topic(self.name, self.partitions, self.limit.configs)]

    def start(self, context: WorkloadContext) -> None:
        if self.kind == "keyless":
            context.recorder.compacted.add(self.name)
        for index in range(self.producers):
            context.launch(f"{self.name}-{index}", self, _Sending)
        if self.limit.comes_late:
            context.launch(f"{self.name}-lower", self, _Lowering)
        context.launch(f"{self.name}-read", self, _Reading)


class _Lowering(WorkloadProgram[RefusedBatches]):
    """Lowers the maximum message size once, at any time."""

    def __init__(self, context: WorkloadContext, workload: RefusedBatches, name: str) -> None:
        super().__init__(context, workload, name)
        self.at_us = self.entropy.randint(1, 50_000_000)

    async def __call__(self, host: ClientHost) -> None:
        async with host.client() as client:
            while not host.stopping and host.world.kernel.now_us < self.at_us:
                await host.sleep(250)
            # It is never raised again: a repeated request must also be rejected.
            await alter_topic(client, self.workload.name, {"max.message.bytes": str(LEAST_MESSAGE_BYTES)})


class _Reading(ReadingProgram[RefusedBatches]):
    """A slow reader: seeing a rejected record once is enough."""

    pause_ms = 1_500


class _Sending(SendingProgram[RefusedBatches]):
    aborts = 0.1

    def __init__(self, context: WorkloadContext, workload: RefusedBatches, name: str) -> None:
        super().__init__(context, workload, name)
        self.settings = ProducerSettings(batch_bytes=workload.batch_bytes, delivery_timeout_ms=20_000)
        # A batch of this round was rejected.
        self.refused = False
        # The value of this round's bad record.
        self.bad = ""

    async def send_records(self, client: AsyncClient, producer: AsyncProducer, writes: Writes) -> None:
        # Send a few records; outside transactions the producer continues after a rejection.
        self.refused, self.bad = False, ""
        producer.on_outcome = partial(self.handle_outcome, writes)
        count = self.entropy.randint(2, 6)
        bad_one = self.entropy.randrange(count) if self.entropy.random() < 0.3 else count
        try:
            for index in range(count):
                await self.send_record(producer, writes, good=index != bad_one)
            await producer.flush()
        except DeliveryFailed as error:
            if error.maybe_appended:
                raise
        if self.bad and not self.workload.limit.comes_late:
            accepted = [
                write
                for write in writes.all()
                if write.value == self.bad and write.outcome is RecordedOutcome.COMMITTED
            ]
            if accepted:
                self.context.report_unexpected(
                    f"{accepted[0].partition} took a record that is too {self.workload.kind}"
                )

    async def send_record(self, producer: AsyncProducer, writes: Writes, *, good: bool) -> None:
        work, value = self.workload, self.next_value()
        timestamp_ms = self.context.world.kernel.now_ms()
        key = f"k{self.entropy.randrange(20)}" if good and work.kind == "keyless" else None
        if not good:
            if work.limit.error == ErrorCode.MESSAGE_TOO_LARGE:
                value += "/" + "x" * 2 * LEAST_MESSAGE_BYTES
            elif work.limit.error == ErrorCode.INVALID_TIMESTAMP:
                timestamp_ms += 2 * HOUR_MS if work.kind == "early" else -2 * HOUR_MS
            self.bad = value
        partition = self.partition(self.entropy.randrange(work.partitions))
        await send_write(producer, writes, Write(partition, value, key=key), timestamp_ms)

    def handle_outcome(self, writes: Writes, outcome: BatchOutcome) -> None:
        # Check a batch's outcome. The bad record is rejected for its limit, or because its transaction has ended.
        writes.add_outcome(outcome)
        if isinstance(outcome, Failed):
            error = self.workload.limit.error
            self.refused |= outcome.error_code == error
            if any((record.value or b"").decode() == self.bad for record in outcome.records):
                self.context.expect(
                    f"Produce to {outcome.partition}",
                    outcome.error_code,
                    frozenset({error}),
                    FENCED,
                    ENDED,
                )

    async def run_transaction(
        self, host: ClientHost, client: AsyncClient, producer: AsyncTransactionalProducer
    ) -> None:
        # Run a transaction. After a rejection the producer can abort and continue, unless it was fenced.
        try:
            await super().run_transaction(host, client, producer)
        except (ProducerUnusable, OutOfTurn) as error:
            if self.refused and not isinstance(error, ProducerFenced):
                self.context.report_violation(f"S6 a refusal cost more than its transaction: {self.name}: {error}")
            raise
