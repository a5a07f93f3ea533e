"""The asyncio share consumer in virtual time, beside fake leaders: heartbeats, cancelled polls, callbacks, closing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.client.aio import AsyncShareConsumer
from oncelog.client.errors import Closed
from oncelog.client.machine.share.values import Acknowledged, ShareSettings
from oncelog.client.programs.steps import Link, Program, Sleep
from oncelog.sim.virtual.kernel import Kernel
from oncelog.sim.virtual.loop import SimulatedLoop
from tests.unit.client.programs.fake_brokers import FakeBrokers, VirtualClient
from tests.unit.client.programs.fake_share_group import FakeShareGroup

Scenario = Callable[[FakeShareGroup, VirtualClient], Awaitable[None]]


def run(scenario: Scenario) -> None:
    brokers = FakeBrokers()
    group = FakeShareGroup(brokers, 1)
    loop = SimulatedLoop(Kernel(1))  # type: ignore[abstract]  # what it lacks it refuses

    async def call() -> None:
        await scenario(group, VirtualClient(brokers))

    loop.run(call())


def slow_connections(consumer: AsyncShareConsumer, milliseconds: int) -> None:
    """Let later connections to leaders take time."""
    cluster = consumer._programs._cluster
    connect = cluster.connect

    def slowly(broker: int, timeout_ms: int | None) -> Program[Link]:
        yield Sleep(milliseconds)
        return (yield from connect(broker, timeout_ms))

    cluster.connect = slowly  # type: ignore[method-assign]


def test_heartbeats_go_on_while_the_caller_works_and_end_when_it_does_not_poll() -> None:
    async def scenario(group: FakeShareGroup, client: VirtualClient) -> None:
        settings = ShareSettings(max_poll_interval_ms=60_000)
        async with AsyncShareConsumer(client, "g", ["t"], settings=settings) as consumer:
            await consumer.poll()
            await asyncio.sleep(50)
            assert len(group.heartbeats) >= 10
            assert {message.member_epoch for message in group.heartbeats} == {0, 1}
            await asyncio.sleep(50)
            assert group.heartbeats[-1].member_epoch == -1
            count = len(group.heartbeats)
            await asyncio.sleep(50)
            assert len(group.heartbeats) == count
            group.append(0, 1)
            assert [record.offset async for record in consumer.records(idle_ms=2_000)] == [0]

    run(scenario)


def test_a_cancelled_poll_loses_nothing() -> None:
    async def scenario(group: FakeShareGroup, client: VirtualClient) -> None:
        settings = ShareSettings(acknowledgement="explicit")
        async with AsyncShareConsumer(client, "g", ["t"], settings=settings) as consumer:
            await consumer.poll(1_000)
            group.append(0, 3)
            for wait_ms in (1, 5, 9, 11):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(consumer.poll(60_000), wait_ms / 1000)
            records = await consumer.poll(60_000)
            assert [(record.offset, record.delivery_count) for record in records] == [(0, 1), (1, 1), (2, 1)]

    run(scenario)


def test_results_are_told_to_an_awaited_callback_and_a_closed_consumer_says_so() -> None:
    async def scenario(group: FakeShareGroup, client: VirtualClient) -> None:
        told: list[Acknowledged] = []

        async def tell(results: list[Acknowledged]) -> None:
            told.extend(results)

        group.append(0, 2)
        consumer = AsyncShareConsumer(client, "g", ["t"], on_acknowledged=tell)
        assert [record.offset async for record in consumer.records(idle_ms=1_000)] == [0, 1]
        await consumer.close()
        await consumer.close()
        assert [(result.first_offset, result.last_offset, result.error) for result in told] == [(0, 1, None)]
        assert group.states() == ["accepted"] * 2
        with pytest.raises(Closed, match="'g'"):
            await consumer.poll()

    run(scenario)


def test_a_loop_accepts_each_record_when_it_asks_for_the_next() -> None:
    async def scenario(group: FakeShareGroup, client: VirtualClient) -> None:
        group.append(0, 4)
        async with AsyncShareConsumer(client, "g", ["t"]) as consumer:
            async for record in consumer:
                if record.offset == 2:
                    break
        assert group.states() == ["accepted", "accepted", "available", "available"]

    run(scenario)


def test_a_poll_that_waits_longer_than_the_poll_interval_stays_in_the_group() -> None:
    async def scenario(group: FakeShareGroup, client: VirtualClient) -> None:
        settings = ShareSettings(max_poll_interval_ms=1_500)
        async with AsyncShareConsumer(client, "g", ["t"], settings=settings) as consumer:
            waiting = asyncio.create_task(consumer.poll(60_000))
            await asyncio.sleep(20)
            assert -1 not in {message.member_epoch for message in group.heartbeats}
            group.append(0, 1)
            assert [record.offset for record in await waiting] == [0]
            await asyncio.sleep(1)
            assert group.heartbeats[-1].member_epoch == 1
            await asyncio.sleep(2)
            assert group.heartbeats[-1].member_epoch == -1

    run(scenario)


def test_a_poll_that_begins_while_the_member_leaves_lets_it_join_again() -> None:
    async def scenario(group: FakeShareGroup, client: VirtualClient) -> None:
        settings = ShareSettings(max_poll_interval_ms=1_500)
        async with AsyncShareConsumer(client, "g", ["t"], settings=settings) as consumer:
            await consumer.poll(1_000)
            while group.heartbeats[-1].member_epoch != -1:
                await asyncio.sleep(0.001)
            group.append(0, 1)
            assert [record.offset for record in await consumer.poll(5_000)] == [0]

    run(scenario)


def test_a_poll_and_a_commit_of_other_tasks_end_when_the_consumer_is_closed() -> None:
    async def scenario(group: FakeShareGroup, client: VirtualClient) -> None:
        group.append(0, 1)
        settings = ShareSettings(acknowledgement="explicit")
        consumer = AsyncShareConsumer(client, "g", ["t"], settings=settings)
        (record,) = await consumer.poll(1_000)
        waiting = asyncio.create_task(consumer.poll(60_000))
        await asyncio.sleep(1)
        consumer.accept(record)
        group.acknowledge_codes = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 4
        committing = asyncio.create_task(consumer.commit(60_000))
        await asyncio.sleep(0.6)
        await consumer.close()
        for task in (waiting, committing):
            with pytest.raises(Closed, match="'g'"):
                await task
        group.append(0, 1)
        await asyncio.sleep(60)
        assert group.states() == ["accepted", "available"]
        assert consumer.assignment == ()
        assert not group.sessions

    run(scenario)


def test_a_poll_that_connects_while_the_consumer_closes_acquires_nothing() -> None:
    async def scenario(group: FakeShareGroup, client: VirtualClient) -> None:
        consumer = AsyncShareConsumer(client, "g", ["t"])
        slow_connections(consumer, 8_000)
        waiting = asyncio.create_task(consumer.poll(60_000))
        await asyncio.sleep(1)
        group.append(0, 1)
        await consumer.close()
        with pytest.raises(Closed):
            await waiting
        await asyncio.sleep(60)
        assert group.states() == ["available"]
        assert not group.sessions

    run(scenario)


def test_a_leader_that_another_task_has_dropped_is_left_alone() -> None:
    async def scenario(group: FakeShareGroup, client: VirtualClient) -> None:
        brokers = group.brokers
        brokers.leaders["t"][1] = 3
        settings = ShareSettings(acknowledgement="explicit")
        async with AsyncShareConsumer(client, "g", ["t"], settings=settings) as consumer:
            await consumer.poll(1_000)
            await asyncio.sleep(1)  # both leaders have answered
            programs = consumer._programs
            slow_connections(consumer, 100)
            brokers.leaders["t"][1] = 1
            client.view.forget("t")
            await asyncio.sleep(1)
            await client.run(programs.member.look_up())
            link = programs._leaders[1].link
            assert link is not None
            link.abort()
            group.append(0, 1)
            polls = await asyncio.gather(consumer.poll(500), consumer.poll(500))
            assert sum(map(len, polls)) == 1
            assert list(programs._leaders) == [1]

    run(scenario)
