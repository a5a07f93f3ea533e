"""A hand-made idempotent producer: repeats one of its last five batches, and leaves a gap in its sequence.

Our own client does neither: it has five batches in flight at most, and stops at a gap.
"""

from __future__ import annotations

from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.link import AsyncLink
from oncelog.client.errors import ClientError
from oncelog.client.machine.requests import produce_request
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.sim.checkers.history import RecordedOutcome, Stream, Write
from oncelog.sim.virtual.world import CLIENT_CONFIG, ClientHost
from oncelog.sim.workloads.kit.workload import WorkloadContext
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest

PRODUCE_VERSION: Final = 13
# Batches that a broker remembers per producer, and so a client's limit of batches in flight.
BATCHES_KNOWN: Final = 5
# Sequences to skip: more than a run uses, so that the rejected batch never fits when the network repeats it.
GAP: Final = 1_000_000


class RepeatingProducer:
    def __init__(self, context: WorkloadContext, topic: str, name: str) -> None:
        self.context = context
        self.partition = TopicPartition(TopicName(topic), 0)
        self.name = name
        self.entropy = context.entropy(name)
        self.count = 0

    async def __call__(self, host: ClientHost) -> None:
        writes: list[Write] = []
        try:
            async with host.client() as client:
                await client.topic(self.partition.topic)
                link = await client.link(await client.leader(self.partition))
                init_response = await link.call(
                    InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=10_000), 5
                )
                if init_response.error_code:
                    raise ClientError(f"InitProducerId: {init_response.error_code}")
                next_sequence = 0
                while not host.stopping:
                    await self.run_round(client, link, init_response.producer_id, next_sequence, writes)
                    next_sequence += BATCHES_KNOWN
                    await host.pause(self.entropy, 2_000)
        finally:
            self.context.recorder.streams.append(Stream(host.name, writes))

    async def run_round(
        self, client: AsyncClient, link: AsyncLink, producer_id: int, next_sequence: int, writes: list[Write]
    ) -> None:
        # Send five batches, the first of them again, and one after a gap.
        sent: list[tuple[bytearray, int]] = []
        for sequence in range(next_sequence, next_sequence + BATCHES_KNOWN):
            batch = self.batch(client, producer_id, sequence, writes)
            code, offset = await _send(client, link, self.partition, batch)
            if code:
                raise ClientError(f"Produce: {code}")
            writes[-1] = writes[-1]._replace(offset=offset, outcome=RecordedOutcome.COMMITTED)
            sent.append((batch, offset))
        batch, offset = sent[0]
        code, repeated_offset = await _send(client, link, self.partition, batch)
        self.context.expect("Produce of the fifth batch back", code, frozenset({ErrorCode.NONE}))
        if not code and repeated_offset != offset:
            self.context.report_unexpected(f"a repeated batch is at {repeated_offset}, it was at {offset}")
        batch = self.batch(client, producer_id, next_sequence + BATCHES_KNOWN + GAP, writes)
        writes[-1] = writes[-1]._replace(outcome=RecordedOutcome.ABORTED)
        code, _ = await _send(client, link, self.partition, batch)
        self.context.expect("Produce after a gap", code, frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}))

    def batch(self, client: AsyncClient, producer_id: int, sequence: int, writes: list[Write]) -> bytearray:
        self.count += 1
        write = Write(self.partition, f"{self.name}/{self.count}", sent_at=self.context.world.kernel.now_us)
        writes.append(write)
        record = Record(-1, client.now_ms(), None, write.value.encode(), ())
        return build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


async def _send(client: AsyncClient, link: AsyncLink, partition: TopicPartition, batch: bytearray) -> tuple[int, int]:
    message = produce_request(client.view, {partition: batch}, -1, CLIENT_CONFIG.request_timeout_ms)
    response = (await link.call(message, PRODUCE_VERSION)).responses[0].partition_responses[0]
    return response.error_code, response.base_offset
