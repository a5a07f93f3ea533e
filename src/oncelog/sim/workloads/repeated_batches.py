"""An idempotent producer by hand: what it repeats is one of the last five batches, what it leaves out is missed.

Our own client never asks for either: it waits before it has more than five batches under way, and gives up after a gap.
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
BATCHES_KNOWN: Final = 5
"""Batches that a broker knows of each producer, so that a client may have as many under way."""
GAP: Final = 1_000_000
"""Sequences left out: more than a run ever uses, or the refused batch, repeated by the network, would fit in later."""


class RepeatingProducer:
    """An idempotent producer that repeats the oldest of five batches, and leaves one out."""

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
                given = await link.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=10_000), 5)
                if given.error_code:
                    raise ClientError(f"InitProducerId: {given.error_code}")
                following = 0
                while not host.stopping:
                    await self.one_round(client, link, given.producer_id, following, writes)
                    following += BATCHES_KNOWN
                    await host.pause(self.entropy, 2_000)
        finally:
            self.context.recorder.streams.append(Stream(host.name, writes))

    async def one_round(
        self, client: AsyncClient, link: AsyncLink, producer_id: int, following: int, writes: list[Write]
    ) -> None:
        """Five batches, the first of them again, and one that comes after one that does not."""
        sent: list[tuple[bytearray, int]] = []
        for sequence in range(following, following + BATCHES_KNOWN):
            batch = self.batch(client, producer_id, sequence, writes)
            code, offset = await _send(client, link, self.partition, batch)
            if code:
                raise ClientError(f"Produce: {code}")
            writes[-1] = writes[-1]._replace(offset=offset, outcome=RecordedOutcome.COMMITTED)
            sent.append((batch, offset))
        batch, offset = sent[0]
        code, again = await _send(client, link, self.partition, batch)
        self.context.expect("Produce of the fifth batch back", code, frozenset({ErrorCode.NONE}))
        if not code and again != offset:
            self.context.object(f"a repeated batch is at {again}, it was at {offset}")
        batch = self.batch(client, producer_id, following + BATCHES_KNOWN + GAP, writes)
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
    answer = (await link.call(message, PRODUCE_VERSION)).responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset
