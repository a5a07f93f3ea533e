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
from oncelog.sim.checkers.verdicts import Planted
from oncelog.sim.workloads.base import Stage
from oncelog.sim.workloads.hangs.by_hand import DAY_MS, ByHand
from oncelog.sim.workloads.hangs.ground import Ground
from oncelog.sim.workloads.hangs.offsets import late_offsets
from oncelog.sim.workloads.hostile import LATE, newest_connection
from oncelog.sim.world import CLIENT_CONFIG, ClientHost
from oncelog.wire.messages.produce import PartitionProduceResponse

RAW_PRODUCER_IDS: Final = 4_000_000_000
"""No coordinator gives out such ids within a simulation."""
HELD_MS: Final = 20_000
Plant = Callable[["Planter", ClientHost, AsyncClient], Awaitable[None]]


class Planter:
    """One plant after another, each by a producer of its own; whatever is refused or lost is given up."""

    def __init__(
        self, stage: Stage, ground: Ground, name: str, places: Sequence[TopicPartition], live_ids: Sequence[str]
    ) -> None:
        self.stage = stage
        self.ground = ground
        self.name = name
        self.places = places
        self.live_ids = live_ids
        """Transactional ids of producers that are at work."""
        self.entropy = stage.entropy(name)

    async def __call__(self, host: ClientHost) -> None:
        async with host.client() as client:
            await client.topic(self.places[0].topic)
            while not host.stopping:
                await host.sleep(self.entropy.randint(200, 6_000))
                await self.entropy.choice(_KINDS)(self, host, client)

    def new_hand(self, host: ClientHost, client: AsyncClient) -> ByHand:
        """A producer with an id of its own and a short time-out; its records may say that they are old."""
        return ByHand(
            self.stage,
            host,
            client,
            self.ground.new_id(self.name),
            timeout_ms=self.entropy.choice((3_000, 10_000)),
            age_ms=self.entropy.choice((0, 0, 1_000_000, DAY_MS)),
        )

    def two_places(self) -> list[TopicPartition]:
        """Two partitions."""
        return self.entropy.sample(self.places, 2)

    def plant(self, kind: str, hand: ByHand, place: TopicPartition) -> None:
        """What ``hand`` sends there next hangs, if it arrives when it should."""
        now_ms = self.stage.world.broker.now_ms()
        self.ground.plant(
            Planted(kind, place, hand.producer_id, hand.epoch, hand.name, hand.timeout_ms, planted_ms=now_ms)
        )

    def answered(self, code: int, hand: ByHand, place: TopicPartition, offset: int = -1) -> None:
        """The leader has said what it did with what was to hang, and where that is."""
        if code != ErrorCode.NONE:
            return
        if self.ground.verifies:
            self.stage.object(f"{hand.name}: a leader that verifies has let a hanging transaction begin on {place}")
        first_ms = hand.last[place].timestamp_ms if offset >= 0 else 0
        self.ground.certain(place, hand.producer_id, offset, first_ms)

    async def hang(self, kind: str, hand: ByHand, place: TopicPartition) -> None:
        """Records that no coordinator will end: one, or some that come one after the other."""
        value = hand.new_value()
        self.plant(kind, hand, place)
        hand.record_hung(place, value)
        answer = await hand.send(await hand.leader(place), hand.request(place, value))
        self.answered(answer.error_code, hand, place, answer.base_offset)
        while self.entropy.random() < 0.3:
            await hand.host.sleep(self.entropy.randint(1, 3_000))
            value = hand.new_value()
            hand.record_hung(place, value)
            await hand.send(await hand.leader(place), hand.request(place, value))


async def _late(planter: Planter, host: ClientHost, client: AsyncClient) -> None:
    """KAFKA-9144: a batch is under way on an old connection while the transaction ends, and comes after its marker."""
    hand, places = planter.new_hand(host, client), planter.two_places()
    await hand.initialise()
    try:
        await hand.add(places)
        for place in places:
            await hand.write(place)
        await _end_before(planter, hand, places[0])
    finally:
        hand.record()


async def _end_before(planter: Planter, hand: ByHand, place: TopicPartition) -> None:
    """End the transaction while another batch of it is held on its way."""
    client, host, value = hand.client, hand.host, hand.new_value()
    old = await AsyncLink.open(client.view.brokers[await client.leader(place)].address, CLIENT_CONFIG)
    held = newest_connection(host)
    held.up.cut(LATE)
    planter.plant("late", hand, place)
    late = asyncio.create_task(hand.send(old, hand.request(place, value), HELD_MS))
    late.add_done_callback(_seen)
    is_late = False
    try:
        await hand.end(commit=planter.entropy.random() < 0.6)
        await hand.completed()
        await host.sleep(planter.entropy.randint(0, 2_000))
        is_late = held.up.is_cut(LATE)  # unless the world was healed meanwhile
        held.up.heal(LATE)
        if is_late:
            answer = await late
            planter.answered(answer.error_code, hand, place, answer.base_offset)
    finally:
        hand.record_hung(place, value, is_late=is_late)
        held.up.heal(LATE)
        late.cancel()
        await old.close()


async def _unlisted(planter: Planter, host: ClientHost, client: AsyncClient) -> None:
    """A partition that was never announced; the transaction goes on elsewhere, and ends or times out without it."""
    hand, (listed, other) = planter.new_hand(host, client), planter.two_places()
    await hand.initialise()
    try:
        await hand.add([listed])
        await hand.write(listed)
        await planter.hang("unlisted", hand, other)
        if planter.entropy.random() < 0.7:
            await host.sleep(planter.entropy.randint(0, hand.timeout_ms * 3 // 4))
            await hand.write(listed)
            await hand.end(commit=planter.entropy.random() < 0.6)
    finally:
        hand.record()


async def _moved_on(planter: Planter, host: ClientHost, client: AsyncClient) -> None:
    """A zombie writes where its successor, which has a newer epoch, has not written yet."""
    zombie, (listed, other) = planter.new_hand(host, client), planter.two_places()
    await zombie.initialise()
    try:
        if planter.entropy.random() < 0.5:
            await zombie.add([listed])
            await zombie.write(listed)
        successor = ByHand(planter.stage, host, client, zombie.name, timeout_ms=zombie.timeout_ms)
        await successor.initialise()
        await planter.hang("moved-on", zombie, other)
    finally:
        zombie.record()


async def _raw(planter: Planter, host: ClientHost, client: AsyncClient) -> None:
    """A producer id that no coordinator gave out, under an id that nobody knows, or that somebody else has."""
    name = planter.ground.new_id(planter.name)
    if planter.live_ids and planter.entropy.random() < 0.3:
        name = planter.entropy.choice(planter.live_ids)
    raw = ByHand(
        planter.stage,
        host,
        client,
        name,
        timeout_ms=0,
        age_ms=planter.entropy.choice((0, DAY_MS)),
        producer_id=RAW_PRODUCER_IDS + planter.ground.count,
        epoch=planter.entropy.randint(0, 3),
    )
    await planter.hang("raw", raw, planter.entropy.choice(planter.places))


_KINDS: Final[tuple[Plant, ...]] = (_late, _late, _unlisted, _moved_on, _raw, late_offsets)


def _seen(task: asyncio.Task[PartitionProduceResponse]) -> None:
    """A late answer may fail after everybody has gone: asyncio is told that somebody knows."""
    if not task.cancelled() and not isinstance(task.exception(), (ClientError, type(None))):
        raise RuntimeError("a late write failed") from task.exception()
