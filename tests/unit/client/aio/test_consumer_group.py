"""An asyncio consumer of the consumer protocol in virtual time: callbacks, interrupted polls, and long work."""

from __future__ import annotations

import asyncio

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.client.aio.group import AsyncGroupConsumer
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.group import GroupSettings
from oncelog.wire.message import Response as ResponseMessage
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from oncelog.wire.messages.fetch import FetchRequest
from oncelog.wire.messages.offset_commit import OffsetCommitRequest
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest
from tests.unit.client.programs.fake_brokers import LATENCY_MS, AsyncRunner, FakeBrokers
from tests.unit.client.programs.fake_consumer_group import INTERVAL_MS, ConsumerCoordinator, topic_id
from tests.unit.client.programs.test_group import T0, T1

Partitions = tuple[TopicPartition, ...]


class Told:
    """The callbacks of a consumer, and what they were called with."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Partitions]] = []

    async def assigned(self, positions: dict[TopicPartition, int]) -> None:
        self.events.append(("assigned", tuple(positions)))

    async def revoked(self, partitions: Partitions) -> None:
        self.events.append(("revoked", partitions))

    async def lost(self, partitions: Partitions) -> None:
        self.events.append(("lost", partitions))


class World:
    """A consumer's brokers, coordinator and clock."""

    def __init__(self) -> None:
        brokers = FakeBrokers()
        self.coordinator = ConsumerCoordinator(brokers)
        brokers.answers[FetchRequest] = lambda *_: None  # nothing is written
        self.runner = AsyncRunner(brokers)
        self.brokers = brokers
        self.told = Told()

    def consumer(self, settings: GroupSettings | None = None) -> AsyncGroupConsumer:
        told = self.told
        return AsyncGroupConsumer(
            self.runner.client,
            "g",
            ["t"],
            protocol="consumer",
            settings=settings,
            on_assigned=told.assigned,
            on_revoked=told.revoked,
            on_lost=told.lost,
        )

    async def until(self, event: str, consumer: AsyncGroupConsumer) -> None:
        """Poll until a callback was called."""
        async with asyncio.timeout(2 * INTERVAL_MS / 1000):
            while event not in [name for name, _ in self.told.events]:
                await consumer.poll(LATENCY_MS)


@pytest.fixture
def world() -> World:
    return World()


async def polled(consumer: AsyncGroupConsumer, owned: Partitions, seconds: float = 2 * INTERVAL_MS / 1000) -> None:
    """Poll until the consumer owns exactly ``owned``."""
    async with asyncio.timeout(seconds):
        while consumer.assignment != owned:
            await consumer.poll(5 * LATENCY_MS)


def test_only_partitions_that_move_are_revoked_after_a_commit(world: World) -> None:
    coordinator = world.coordinator

    async def scenario() -> None:
        async with world.consumer() as consumer:
            await polled(consumer, (T0, T1))
            consumer.seek({T1: 7})
            consumer.processed(T0, 4)
            coordinator.target = {"t": [1]}
            await polled(consumer, (T1,))
            assert (coordinator.offsets, consumer.position(T0), consumer.position(T1)) == ({0: 4}, None, 7)
            coordinator.target = {"t": [0, 1]}
            await polled(consumer, (T1, T0))
            assert (consumer.position(T0), consumer.position(T1)) == (4, 7)
            assert consumer.group_metadata.generation == 3

    world.runner.loop.run(scenario())
    assert world.told.events == [
        ("assigned", (T0, T1)),
        ("revoked", (T0,)),
        ("assigned", (T0,)),
        ("revoked", (T1, T0)),
    ]
    assert coordinator.heartbeats[-1].member_epoch == -1


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_lost_partitions_are_dropped_without_a_commit_before_the_member_joins_again(
    world: World, code: ErrorCode
) -> None:
    async def scenario() -> None:
        async with world.consumer() as consumer:
            await polled(consumer, (T0, T1))
            consumer.processed(T0, 4)
            world.coordinator.codes = [code]
            await asyncio.sleep(2 * INTERVAL_MS / 1000)
            assert (consumer.assignment, world.coordinator.codes) == ((T0, T1), [])
            consumer._assigned._commit_due_ms += INTERVAL_MS  # it is not the interval that commits
            await world.until("lost", consumer)
            await polled(consumer, (T0, T1))

    world.runner.loop.run(scenario())
    assert [name for name, _ in world.told.events] == ["assigned", "lost", "assigned", "revoked"]
    assert world.coordinator.offsets == {}


def test_a_fenced_instance_tells_of_its_loss_before_it_raises(world: World) -> None:
    async def scenario() -> None:
        async with world.consumer(GroupSettings(instance_id="i")) as consumer:
            await polled(consumer, (T0, T1))
            world.coordinator.codes = [ErrorCode.FENCED_INSTANCE_ID] * 3
            await asyncio.sleep(2 * INTERVAL_MS / 1000)
            for _ in range(3):
                with pytest.raises(BrokerRefused, match="same instance id"):
                    await consumer.poll(1_000)
                assert consumer.assignment == ()

    world.runner.loop.run(scenario())
    assert [name for name, _ in world.told.events] == ["assigned", "lost"]
    assert world.coordinator.heartbeats[-1].member_epoch == -2


def test_who_works_too_long_leaves_and_loses_its_partitions(world: World) -> None:
    async def scenario() -> None:
        async with world.consumer(GroupSettings(rebalance_timeout_ms=2 * INTERVAL_MS)) as consumer:
            await polled(consumer, (T0, T1))
            await asyncio.sleep(4 * INTERVAL_MS / 1000)
            assert world.coordinator.heartbeats[-1].member_epoch == -1
            await world.until("lost", consumer)
            await polled(consumer, (T0, T1))

    world.runner.loop.run(scenario())
    assert [name for name, _ in world.told.events] == ["assigned", "lost", "assigned", "revoked"]


@pytest.mark.parametrize("request_type", [OffsetFetchRequest, OffsetCommitRequest, ConsumerGroupHeartbeatRequest])
@pytest.mark.parametrize("after_ms", [1, LATENCY_MS + 1])
def test_a_poll_that_is_cancelled_anywhere_stands_nowhere_still(
    world: World, request_type: type, after_ms: int
) -> None:
    """The request is under way, or answered, when the poll is cancelled; then the target changes."""
    event = asyncio.Event()
    answer = world.brokers.answers[request_type]

    def noticed(broker: int, message: object) -> ResponseMessage | None:
        event.set()
        return answer(broker, message)

    async def cancelled(consumer: AsyncGroupConsumer) -> None:
        event.clear()
        poll = asyncio.create_task(consumer.poll(20_000))
        await asyncio.wait([poll, asyncio.create_task(event.wait())], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(after_ms / 1000)
        poll.cancel()
        await asyncio.gather(poll, return_exceptions=True)

    async def scenario() -> None:
        async with world.consumer() as consumer:
            world.brokers.answers[request_type] = noticed
            if request_type is not OffsetCommitRequest:
                await cancelled(consumer)
            await polled(consumer, (T0, T1))
            for target, owned in (([1], (T1,)), ([0, 1], (T1, T0)), ([0], (T0,))):
                consumer.processed(T1, 5)
                world.coordinator.target = {"t": target}
                await cancelled(consumer)
                await polled(consumer, owned)
            assert world.coordinator.owned == {topic_id("t"): [0]}

    world.runner.loop.run(scenario())


def test_closing_while_a_join_is_under_way_leaves(world: World) -> None:
    async def scenario() -> None:
        consumer = world.consumer()
        await consumer.poll(3 * LATENCY_MS)
        while not world.coordinator.heartbeats:
            await asyncio.sleep(0.001)
        await consumer.close()

    world.runner.loop.run(scenario())
    assert [message.member_epoch for message in world.coordinator.heartbeats] == [0, -1]
