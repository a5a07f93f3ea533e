"""Consumers leave a leader that is silent for longer than a fetch may wait, once another broker leads."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.client.programs.doubt import DOUBT_AGAIN_MS, DOUBT_CONNECT_MS, DOUBT_MS
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.wire.message import Response as ResponseMessage
from oncelog.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from oncelog.wire.messages.metadata import MetadataRequest
from tests.unit.client.programs.fake_brokers import AsyncRunner, BlockingRunner, FakeBrokers, FakeLink

PARTITION = TopicPartition(TopicName("t"), 0)
SETTINGS = FetchSettings()
SILENCE_MS = SETTINGS.max_wait_ms + DOUBT_MS
BATCH = bytes(build_batch([Record(0, 1, None, b"x", ())]))


def freeze(brokers: FakeBrokers, leader: int) -> None:
    """Broker 1 leads and answers nothing from its first fetch on; ``leader`` has been elected by then."""
    frozen: set[int] = set()
    metadata = brokers.answers[MetadataRequest]
    brokers.leaders["t"] = {0: 1}

    def answer(broker: int, message: Any) -> ResponseMessage | None:
        if isinstance(message, MetadataRequest):
            return None if broker in frozen else metadata(broker, message)
        if broker == 1:
            frozen.add(broker)
            brokers.leaders["t"] = {0: leader}
            return None
        return fetched(message)

    brokers.answers |= {MetadataRequest: answer, FetchRequest: answer}


def fetched(message: FetchRequest) -> FetchResponse:
    topic = message.topics[0]
    data = PartitionData(partition_index=0, high_watermark=1, last_stable_offset=1, log_start_offset=0, records=BATCH)
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=topic.topic_id, partitions=[data])])


def read_blocking(brokers: FakeBrokers, wait_ms: int) -> tuple[list[Fetched], int]:
    runner = BlockingRunner(brokers)
    fetcher = Fetcher(runner, SETTINGS)
    fetcher.assign({PARTITION: 0})
    return fetcher.poll(wait_ms), runner.now_ms()


def read_async(brokers: FakeBrokers, wait_ms: int) -> tuple[list[Fetched], int]:
    runner = AsyncRunner(brokers)

    async def read() -> list[Fetched]:
        async with AsyncConsumer(runner.client, SETTINGS) as consumer:
            await consumer.assign({PARTITION: 0})
            return await consumer.poll(wait_ms)

    return runner.loop.run(read()), runner.now_ms()


@pytest.mark.parametrize("read", [read_blocking, read_async])
@pytest.mark.parametrize("leader", [2, 3])
def test_a_silent_leader_is_left_once_another_leads(read: Any, leader: int) -> None:
    brokers = FakeBrokers()
    freeze(brokers, leader)
    results, now_ms = read(brokers, 20_000)
    assert [result.records for result in results] == [BATCH]
    assert brokers.asked(FetchRequest)[:2] == [1, leader]
    assert SILENCE_MS <= now_ms <= SILENCE_MS + 800


def test_a_leader_that_falls_silent_within_an_answer_is_left_too(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = FakeBrokers()
    freeze(brokers, 2)
    monkeypatch.setattr(FakeLink, "missing", property(lambda link: 100 if link.broker == 1 else 0))
    results, now_ms = read_blocking(brokers, 20_000)
    assert [result.records for result in results] == [BATCH]
    assert now_ms <= SILENCE_MS + 2 * DOUBT_AGAIN_MS + 800


def test_a_frozen_broker_that_still_leads_other_partitions_delays_nothing() -> None:
    """It is asked again, in a short time: its kernel accepts connections that nobody answers."""
    brokers = FakeBrokers()
    freeze(brokers, 2)
    brokers.leaders["t"] = {0: 1, 1: 1}
    answer = brokers.answers[FetchRequest]

    def fetched_or_frozen(broker: int, message: FetchRequest) -> ResponseMessage | None:
        if broker == 1:
            brokers.unreachable.add(1)
            answer(broker, message)
            brokers.leaders["t"] = {0: 2, 1: 1}
            return None
        return answer(broker, message)

    brokers.answers[FetchRequest] = fetched_or_frozen
    runner = BlockingRunner(brokers)
    fetcher = Fetcher(runner, SETTINGS)
    fetcher.assign({PARTITION: 0, TopicPartition(TopicName("t"), 1): 0})
    assert [result.partition for result in fetcher.poll(20_000)] == [PARTITION]
    assert runner.now_ms() <= SILENCE_MS + 2 * DOUBT_CONNECT_MS + 800


@pytest.mark.parametrize("read", [read_blocking, read_async])
@pytest.mark.parametrize("late_ms", [DOUBT_MS - 100, DOUBT_MS + 300])
def test_a_slow_leader_that_leads_still_is_waited_for(read: Any, late_ms: int) -> None:
    brokers = FakeBrokers()
    brokers.leaders["t"] = {0: 1}
    brokers.answers[FetchRequest] = lambda _, message: fetched(message)
    brokers.slow_ms[1] = SETTINGS.max_wait_ms + late_ms
    results, _ = read(brokers, 20_000)
    assert [result.records for result in results] == [BATCH]
    assert set(brokers.asked(FetchRequest)) == {1}
    doubted = late_ms > DOUBT_MS
    assert (2 in brokers.asked(MetadataRequest)) is doubted, "another is asked only after a fetch's own wait"
