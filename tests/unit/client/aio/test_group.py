"""A consumer in a group, in virtual time: what interrupts a poll, and the next poll."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.aio.group import AsyncGroupConsumer
from oncelog.client.errors import BrokerRefused, UnknownTopic, UnsupportedRequest
from oncelog.client.machine.positions import FetchSettings
from oncelog.client.machine.versions import Versions
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.wire.message import Response as ResponseMessage
from oncelog.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from oncelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.wire.messages.join_group import JoinGroupRequest
from oncelog.wire.messages.list_offsets import ListOffsetsRequest
from oncelog.wire.messages.offset_commit import OffsetCommitRequest
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


def fetch_codes(codes: dict[int, int]) -> Callable[[int, FetchRequest], FetchResponse]:
    """Answers of leaders whose partitions have error codes, and otherwise records of one batch."""
    batch = bytes(build_batch([Record(-1, 0, None, b"x")], base_offset=0))

    def answer(_: int, message: FetchRequest) -> FetchResponse:
        topics = [
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(
                        partition_index=partition.partition,
                        error_code=codes.get(partition.partition, 0),
                        records=b"" if codes.get(partition.partition) or partition.fetch_offset else batch,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in message.topics
        ]
        return FetchResponse(responses=topics)

    return answer


@pytest.mark.parametrize("code", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_a_poll_that_fails_or_is_cancelled_returns_its_other_records_next_time(
    runner: AsyncRunner, code: ErrorCode
) -> None:
    """Both partitions arrive in one response: the first with records, the second with an error."""
    brokers = runner.brokers
    brokers.leaders["t"] = {0: 1, 1: 1}
    codes: dict[int, int] = {1: code}

    async def scenario() -> None:
        async with AsyncGroupConsumer(runner.client, "g", ["t"], reset="latest") as consumer:
            await polled(consumer)
            consumer.seek({T0: 0, T1: 0})
            brokers.answers[FetchRequest] = fetch_codes(codes)
            brokers.answers[ListOffsetsRequest] = lambda *_: None  # so that a reset has to be given up
            poll = asyncio.create_task(consumer.poll(1000))
            await asyncio.wait([poll], timeout=1)
            poll.cancel()
            (failure,) = await asyncio.gather(poll, return_exceptions=True)
            assert isinstance(failure, BrokerRefused | asyncio.CancelledError)
            assert consumer.position(T1) == 0, "it is fetched again"
            codes.clear()
            seen = [fetched.partition for fetched in await consumer.poll(1000)]
            seen += [fetched.partition for fetched in await consumer.poll(1000)]
            assert sorted(seen) == [T0, T1]

    runner.loop.run(scenario())


@pytest.mark.parametrize("old_formats", [False, True])
def test_old_formats_admit_old_versions_of_fetch(runner: AsyncRunner, old_formats: bool) -> None:
    async def scenario() -> None:
        settings = FetchSettings(old_formats=old_formats)
        async with AsyncConsumer(runner.client, settings) as consumer:
            await consumer.assign({T0: 0})
            link = await runner.client.connect(1)
            consumer._links[1] = link
            link.versions = Versions({FetchRequest.API_KEY: (0, 2)})
            if not old_formats:
                with pytest.raises(UnsupportedRequest):
                    await consumer.poll(100)
            else:
                assert await consumer.poll(100) == []

    runner.loop.run(scenario())


@pytest.mark.parametrize("place", ["commit", "on_revoked", "on_assigned"])
def test_a_poll_that_is_cancelled_during_a_rebalance_loses_nothing(runner: AsyncRunner, place: str) -> None:
    """In the classic protocol: the next poll ends what the cancelled one began."""
    brokers = runner.brokers
    told: list[str] = []
    arrived = asyncio.Event()
    commit = brokers.answers[OffsetCommitRequest]

    async def at(event: str) -> None:
        told.append(event)
        if place == event:
            arrived.set()
        await asyncio.sleep(0.001)

    def committing(broker: int, message: OffsetCommitRequest) -> ResponseMessage | None:
        arrived.set()
        return commit(broker, message)

    async def scenario() -> None:
        async with AsyncGroupConsumer(
            runner.client,
            "g",
            ["t"],
            on_assigned=lambda _: at("on_assigned"),
            on_revoked=lambda _: at("on_revoked"),
        ) as consumer:
            await polled(consumer)
            consumer.processed(T0, 7)
            if place == "commit":
                brokers.answers[OffsetCommitRequest] = committing
            arrived.clear()
            brokers.answers[HeartbeatRequest] = lambda *_: HeartbeatResponse(
                error_code=ErrorCode.REBALANCE_IN_PROGRESS if len(brokers.asked(JoinGroupRequest)) < 2 else 0
            )
            poll = asyncio.create_task(consumer.poll(20_000))
            await arrived.wait()
            poll.cancel()
            await asyncio.gather(poll, return_exceptions=True)
            async with asyncio.timeout(10):
                while told.count("on_assigned") < 2 or consumer.position(T0) is None:
                    await consumer.poll(LATENCY_MS)
            assert (consumer.assignment, consumer.position(T0)) == ((T0, T1), 7)

    runner.loop.run(scenario())
