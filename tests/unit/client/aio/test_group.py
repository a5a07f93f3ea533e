"""A consumer in a group, in virtual time: what interrupts a poll, and the next poll."""

from __future__ import annotations

import asyncio

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.client.aio.group import AsyncGroupConsumer
from oncelog.client.errors import BrokerRefused, UnknownTopic
from oncelog.wire.message import Response as ResponseMessage
from oncelog.wire.messages.fetch import FetchRequest, FetchResponse
from oncelog.wire.messages.join_group import JoinGroupRequest
from oncelog.wire.messages.list_offsets import ListOffsetsRequest
from tests.unit.client.programs.fake_brokers import LATENCY_MS, AsyncRunner, FakeBrokers
from tests.unit.client.programs.test_group import T0, T1, Coordinator


@pytest.fixture
def runner() -> AsyncRunner:
    brokers = FakeBrokers()
    Coordinator(brokers)
    brokers.answers[FetchRequest] = lambda *_: FetchResponse()
    return AsyncRunner(brokers)


async def polled(consumer: AsyncGroupConsumer, seconds: float = 2) -> None:
    async with asyncio.timeout(seconds):
        while consumer.position(T0) is None:
            await consumer.poll(LATENCY_MS)


def test_an_assignment_that_could_not_be_started_is_started_by_the_next_poll(runner: AsyncRunner) -> None:
    brokers = runner.brokers
    listed = brokers.answers[ListOffsetsRequest]

    def deleting(broker: int, message: ListOffsetsRequest) -> ResponseMessage | None:
        runner.cluster.view.forget("t")  # the positions are known, and the topic disappears for a while
        brokers.leaders.pop("t", None)
        return listed(broker, message)

    async def scenario() -> None:
        async with AsyncGroupConsumer(runner.client, "g", ["t"]) as consumer:
            brokers.answers[ListOffsetsRequest] = deleting
            with pytest.raises(UnknownTopic):
                await polled(consumer, 20)
            assert consumer.assignment == (T0, T1)
            brokers.leaders["t"] = {0: 1, 1: 3}
            await polled(consumer)
            assert (consumer.position(T0), consumer.position(T1)) == (100, 300)

    runner.loop.run(scenario())


def test_a_leader_that_could_not_look_topics_up_assigns_after_the_next_poll(runner: AsyncRunner) -> None:
    brokers = runner.brokers
    joined = brokers.answers[JoinGroupRequest]

    def refusing(broker: int, message: JoinGroupRequest) -> ResponseMessage | None:
        brokers.metadata_error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return joined(broker, message)

    async def scenario() -> None:
        async with AsyncGroupConsumer(runner.client, "g", ["t"]) as consumer:
            brokers.answers[JoinGroupRequest] = refusing
            with pytest.raises(BrokerRefused):
                await polled(consumer)
            brokers.metadata_error = 0
            await polled(consumer)
            assert len(brokers.asked(JoinGroupRequest)) == 1

    runner.loop.run(scenario())


def test_a_poll_that_is_cancelled_while_it_starts_an_assignment_loses_nothing(runner: AsyncRunner) -> None:
    async def scenario() -> None:
        async with AsyncGroupConsumer(runner.client, "g", ["t"]) as consumer:
            await consumer.poll(0)
            while not consumer._membership.news.done() or runner.brokers.asked(ListOffsetsRequest) == []:
                await asyncio.sleep(LATENCY_MS / 1000)
            runner.cluster.view.forget("t")  # so that starting has to look the leaders up
            poll = asyncio.create_task(consumer.poll(1000))
            while not consumer.assignment:
                await asyncio.sleep(0)
            poll.cancel()
            await asyncio.gather(poll, return_exceptions=True)
            assert consumer.position(T0) is None
            await polled(consumer)

    runner.loop.run(scenario())
