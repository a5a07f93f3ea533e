"""Injects hanging transactions with the requests of clients from before KIP-890, at leaders that do not verify.

``request_hangs`` and others have the kinds, as functions. Leaders that verify must reject the same requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.sim.checkers.hanging_verdicts import InjectedHang
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.hangs.ground_truth import GroundTruth
from oncelog.sim.workloads.kit.scripted_producer import DAY_MS, ScriptedProducer
from oncelog.sim.workloads.kit.workload import WorkloadContext

# Injects one hang of its kind, or fails with a ClientError.
Injection = Callable[["HangInjector", ClientHost, AsyncClient], Awaitable[None]]


class HangInjector:
    """Injects one hang after another of ``kinds``, each with its own producer. Rejected or lost ones are given up."""

    def __init__(
        self,
        context: WorkloadContext,
        truth: GroundTruth,
        name: str,
        places: Sequence[TopicPartition],
        live_ids: Sequence[str],
        kinds: Sequence[Injection],
    ) -> None:
        self.context = context
        self.truth = truth
        self.name = name
        self.places = places
        # Transactional ids of running producers.
        self.live_ids = live_ids
        self.kinds = kinds
        self.entropy = context.entropy(name)

    async def __call__(self, host: ClientHost) -> None:
        async with host.client() as client:
            await client.topic(self.places[0].topic)
            while not host.stopping:
                await host.sleep(self.entropy.randint(200, 6_000))
                await self.entropy.choice(self.kinds)(self, host, client)

    def new_producer(self, host: ClientHost, client: AsyncClient) -> ScriptedProducer:
        # A producer with its own id and a short timeout. Its records may have old timestamps.
        return ScriptedProducer(
            self.context,
            host,
            client,
            self.truth.new_id(self.name),
            timeout_ms=self.entropy.choice((3_000, 10_000)),
            age_ms=self.entropy.choice((0, 0, 1_000_000, DAY_MS)),
        )

    def two_partitions(self) -> list[TopicPartition]:
        return self.entropy.sample(self.places, 2)

    def inject(self, kind: str, producer: ScriptedProducer, place: TopicPartition) -> None:
        """Register that the next batch of ``producer`` to a partition hangs, if it arrives on time."""
        self.truth.inject(
            InjectedHang(
                kind,
                place,
                producer.producer_id,
                producer.epoch,
                producer.name,
                producer.timeout_ms,
                injected_ms=self.context.world.broker_times(),
            )
        )

    def answered(self, code: int, producer: ScriptedProducer, place: TopicPartition, offset: int = -1) -> None:
        """Handle the leader's response to a hanging batch. ``offset``: of the batch."""
        if code != ErrorCode.NONE:
            return
        if self.truth.verifies:
            self.context.report_unexpected(
                f"{producer.name}: a leader that verifies has let a hanging transaction begin on {place}"
            )
        first_ms = producer.last[place].timestamp_ms if offset >= 0 else 0
        self.truth.certain(place, producer.producer_id, offset, first_ms)

    async def hang(self, kind: str, producer: ScriptedProducer, place: TopicPartition) -> None:
        """Write one or more records that no coordinator will end."""
        value = producer.new_value()
        self.inject(kind, producer, place)
        producer.record_hung(place, value)
        response = await producer.send(await producer.leader(place), producer.request(place, value))
        self.answered(response.error_code, producer, place, response.base_offset)
        while self.entropy.random() < 0.3:
            await producer.host.sleep(self.entropy.randint(1, 3_000))
            value = producer.new_value()
            producer.record_hung(place, value)
            await producer.send(await producer.leader(place), producer.request(place, value))
