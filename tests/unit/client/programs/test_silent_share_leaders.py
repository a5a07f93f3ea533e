"""Share consumers leave a leader that is silent for too long, whatever they wait for, once another broker leads."""

from __future__ import annotations

import itertools

import pytest

from oncelog.client.machine.share.values import ShareSettings
from oncelog.client.programs.doubt import DOUBT_CONNECT_MS, DOUBT_MS
from oncelog.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from oncelog.wire.messages.share_fetch import ShareFetchRequest
from tests.unit.client.programs.fake_brokers import Runner
from tests.unit.client.programs.fake_brokers import runner as runner
from tests.unit.client.programs.fake_share_group import FakeShareGroup
from tests.unit.client.programs.test_share_consumer import EXPLICIT, Consumer

SILENCE_MS = EXPLICIT.max_wait_ms + DOUBT_MS


def test_a_silent_leader_is_left_once_another_leads(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    consumer = Consumer(runner)
    assert consumer.poll(100) == []
    group.append(0, 1)
    group.ignored.add(ShareFetchRequest)
    runner.brokers.leaders["t"][0] = 2
    until_ms = runner.now_ms() + 2 * EXPLICIT.max_wait_ms + DOUBT_MS + 200
    consumer.until(1)
    assert runner.now_ms() <= until_ms


def test_a_commit_leaves_a_silent_leader(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    group.append(0, 1)
    consumer = Consumer(runner)
    (record,) = consumer.until(1)
    group.ignored.add(ShareAcknowledgeRequest)
    runner.brokers.leaders["t"][0] = 2
    consumer.accept(record)
    began_ms = runner.now_ms()
    (result,) = consumer.commit(10_000)
    assert result.error is not None
    assert runner.now_ms() - began_ms <= DOUBT_MS + 200


def test_a_commit_sleeps_while_a_question_has_its_answer(runner: Runner) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    group.append(0, 1)
    consumer = Consumer(runner)
    (record,) = consumer.until(1)
    group.ignored.add(ShareFetchRequest)
    while group.ignored:
        consumer.poll(50)
    consumer.accept(record)
    while not consumer.programs._doubt.pending:
        consumer.poll(20)
    began_ms, turns = runner.now_ms(), 0
    collect = consumer.programs._collect

    def counted() -> None:
        nonlocal turns
        turns += 1
        assert turns < 100, "the time does not pass"
        collect()

    consumer.programs._collect = counted  # type: ignore[method-assign]
    consumer.commit(2_500)
    assert runner.now_ms() > began_ms


@pytest.mark.parametrize("acquire", ["batch_optimized", "record_limit"])
def test_a_silent_leader_is_left_when_somebody_else_has_learned_of_the_new_one(runner: Runner, acquire: str) -> None:
    group = FakeShareGroup(runner.brokers, 1)
    consumer = Consumer(runner, ShareSettings(acknowledgement="explicit", acquire=acquire))  # type: ignore[arg-type]
    assert consumer.poll(100) == []
    group.append(0, 1)
    group.ignored.add(ShareFetchRequest)
    while group.ignored:
        consumer.poll(50)
    began_ms = runner.now_ms()
    runner.brokers.leaders["t"][0] = 2
    runner.run(runner.cluster.metadata(["t"]))
    consumer.until(1)
    assert runner.now_ms() - began_ms <= SILENCE_MS + 200


def test_a_frozen_leader_of_other_partitions_hardly_delays_the_rest(runner: Runner) -> None:
    """Some partitions of the frozen leader have moved; one stays, and is asked for again and again."""
    group = FakeShareGroup(runner.brokers, 3)
    runner.brokers.leaders["t"] = {0: 1, 1: 3, 2: 1}
    consumer = Consumer(runner)
    assert consumer.poll(100) == []
    group.ignored.add(ShareFetchRequest)
    while group.ignored:
        consumer.poll(50)
    runner.brokers.unreachable.add(1)
    runner.brokers.leaders["t"][0] = 2
    began_ms = runner.now_ms()
    group.append(0, 1)
    consumer.accept(consumer.until(1)[0])
    assert runner.now_ms() - began_ms <= SILENCE_MS + 2 * DOUBT_CONNECT_MS + 800
    until_ms, ends = runner.now_ms() + 5_000, [runner.now_ms()]
    while ends[-1] < until_ms:
        group.append(1, 1)
        consumer.accept(consumer.until(1)[0])
        ends.append(runner.now_ms())
    gaps = [end - begin for begin, end in itertools.pairwise(ends)]
    assert max(gaps) <= DOUBT_MS + 2 * EXPLICIT.max_wait_ms + 100
