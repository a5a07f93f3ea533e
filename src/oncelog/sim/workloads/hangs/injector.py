"""Plants hangs with the requests that clients before KIP-890 send, at leaders that do not verify.

Where leaders do verify, the same requests must be refused: an acknowledged one is objected to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.link import AsyncLink
from oncelog.client.errors import ClientError
from oncelog.sim.checkers.hanging_verdicts import InjectedHang
from oncelog.sim.workloads.hangs.ground_truth import GroundTruth
from oncelog.sim.workloads.hangs.pending_offsets import late_offsets
from oncelog.sim.workloads.hangs.scripted_producer import DAY_MS, ScriptedProducer
from oncelog.sim.workloads.hostile_clients import LATE, newest_connection
from oncelog.sim.workloads.workload import WorkloadContext
from oncelog.sim.world import CLIENT_CONFIG, ClientHost
from oncelog.wire.messages.produce import PartitionProduceResponse

RAW_PRODUCER_IDS: Final = 4_000_000_000
"""No coordinator gives out such ids within a simulation."""
HELD_MS: Final = 20_000
Injection = Callable[["HangInjector", ClientHost, AsyncClient], Awaitable[None]]


class HangInjector:
    """One plant after another, each by a producer of its own; whatever is refused or lost is given up."""

    def __init__(
        self,
        context: WorkloadContext,
        truth: GroundTruth,
        name: str,
        places: Sequence[TopicPartition],
        live_ids: Sequence[str],
    ) -> None:
        self.context = context
        self.truth = truth
        self.name = name
        self.places = places
        self.live_ids = live_ids
        """Transactional ids of producers that are at work."""
        self.entropy = context.entropy(name)

    async def __call__(self, host: ClientHost) -> None:
        async with host.client() as client:
            await client.topic(self.places[0].topic)
            while not host.stopping:
                await host.sleep(self.entropy.randint(200, 6_000))
                await self.entropy.choice(_KINDS)(self, host, client)

    def new_producer(self, host: ClientHost, client: AsyncClient) -> ScriptedProducer:
        """A producer with an id of its own and a short time-out; its records may say that they are old."""
        return ScriptedProducer(
            self.context,
            host,
            client,
            self.truth.new_id(self.name),
            timeout_ms=self.entropy.choice((3_000, 10_000)),
            age_ms=self.entropy.choice((0, 0, 1_000_000, DAY_MS)),
        )

    def two_places(self) -> list[TopicPartition]:
        """Two partitions."""
        return self.entropy.sample(self.places, 2)

    def inject(self, kind: str, producer: ScriptedProducer, place: TopicPartition) -> None:
        """What ``hand`` sends there next hangs, if it arrives when it should."""
        now_ms = self.context.world.broker.now_ms()
        self.truth.inject(
            InjectedHang(
                kind,
                place,
                producer.producer_id,
                producer.epoch,
                producer.name,
                producer.timeout_ms,
                injected_ms=now_ms,
            )
        )

    def answered(self, code: int, producer: ScriptedProducer, place: TopicPartition, offset: int = -1) -> None:
        """The leader has said what it did with what was to hang, and where that is."""
        if code != ErrorCode.NONE:
            return
        if self.truth.verifies:
            self.context.object(
                f"{producer.name}: a leader that verifies has let a hanging transaction begin on {place}"
            )
        first_ms = producer.last[place].timestamp_ms if offset >= 0 else 0
        self.truth.certain(place, producer.producer_id, offset, first_ms)

    async def hang(self, kind: str, producer: ScriptedProducer, place: TopicPartition) -> None:
        """Records that no coordinator will end: one, or some that come one after the other."""
        value = producer.new_value()
        self.inject(kind, producer, place)
        producer.record_hung(place, value)
        answer = await producer.send(await producer.leader(place), producer.request(place, value))
        self.answered(answer.error_code, producer, place, answer.base_offset)
        while self.entropy.random() < 0.3:
            await producer.host.sleep(self.entropy.randint(1, 3_000))
            value = producer.new_value()
            producer.record_hung(place, value)
            await producer.send(await producer.leader(place), producer.request(place, value))


async def _late(injector: HangInjector, host: ClientHost, client: AsyncClient) -> None:
    """KAFKA-9144: a batch is under way on an old connection while the transaction ends, and comes after its marker."""
    producer, places = injector.new_producer(host, client), injector.two_places()
    await producer.initialise()
    try:
        await producer.add(places)
        for place in places:
            await producer.write(place)
        await _end_before(injector, producer, places[0])
    finally:
        producer.record()


async def _end_before(injector: HangInjector, producer: ScriptedProducer, place: TopicPartition) -> None:
    """End the transaction while another batch of it is held on its way."""
    client, host, value = producer.client, producer.host, producer.new_value()
    old = await AsyncLink.open(client.view.brokers[await client.leader(place)].address, CLIENT_CONFIG)
    held = newest_connection(host)
    held.up.cut(LATE)
    injector.inject("late", producer, place)
    late = asyncio.create_task(producer.send(old, producer.request(place, value), HELD_MS))
    late.add_done_callback(_seen)
    is_late = False
    try:
        await producer.end(commit=injector.entropy.random() < 0.6)
        await producer.completed()
        await host.sleep(injector.entropy.randint(0, 2_000))
        is_late = held.up.is_cut(LATE)  # unless the world was healed meanwhile
        held.up.heal(LATE)
        if is_late:
            answer = await late
            injector.answered(answer.error_code, producer, place, answer.base_offset)
    finally:
        producer.record_hung(place, value, is_late=is_late)
        held.up.heal(LATE)
        late.cancel()
        await old.close()


async def _unlisted(injector: HangInjector, host: ClientHost, client: AsyncClient) -> None:
    """A partition that was never announced; the transaction goes on elsewhere, and ends or times out without it."""
    producer, (listed, other) = injector.new_producer(host, client), injector.two_places()
    await producer.initialise()
    try:
        await producer.add([listed])
        await producer.write(listed)
        await injector.hang("unlisted", producer, other)
        if injector.entropy.random() < 0.7:
            await host.sleep(injector.entropy.randint(0, producer.timeout_ms * 3 // 4))
            await producer.write(listed)
            await producer.end(commit=injector.entropy.random() < 0.6)
    finally:
        producer.record()


async def _moved_on(injector: HangInjector, host: ClientHost, client: AsyncClient) -> None:
    """A zombie writes where its successor, which has a newer epoch, has not written yet."""
    zombie, (listed, other) = injector.new_producer(host, client), injector.two_places()
    await zombie.initialise()
    try:
        if injector.entropy.random() < 0.5:
            await zombie.add([listed])
            await zombie.write(listed)
        successor = ScriptedProducer(injector.context, host, client, zombie.name, timeout_ms=zombie.timeout_ms)
        await successor.initialise()
        await injector.hang("moved-on", zombie, other)
    finally:
        zombie.record()


async def _raw(injector: HangInjector, host: ClientHost, client: AsyncClient) -> None:
    """A producer id that no coordinator gave out, under an id that nobody knows, or that somebody else has."""
    name = injector.truth.new_id(injector.name)
    if injector.live_ids and injector.entropy.random() < 0.3:
        name = injector.entropy.choice(injector.live_ids)
    raw = ScriptedProducer(
        injector.context,
        host,
        client,
        name,
        timeout_ms=0,
        age_ms=injector.entropy.choice((0, DAY_MS)),
        producer_id=RAW_PRODUCER_IDS + injector.truth.count,
        epoch=injector.entropy.randint(0, 3),
    )
    await injector.hang("raw", raw, injector.entropy.choice(injector.places))


_KINDS: Final[tuple[Injection, ...]] = (_late, _late, _unlisted, _moved_on, _raw, late_offsets)


def _seen(task: asyncio.Task[PartitionProduceResponse]) -> None:
    """A late answer may fail after everybody has gone: asyncio is told that somebody knows."""
    if not task.cancelled() and not isinstance(task.exception(), (ClientError, type(None))):
        raise RuntimeError("a late write failed") from task.exception()
