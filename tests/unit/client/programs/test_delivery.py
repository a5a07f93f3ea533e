"""Producers and transactions, by both drivers and in virtual time."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import AuthenticationFailed, ClientError, ConnectionLost, ProducerFenced, TransactionFailed
from oncelog.client.machine.producer import ProducerSettings
from oncelog.client.machine.record_values import checked_record
from oncelog.client.machine.transaction_states import State
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.client.programs.delivery import Delivery, DeliveryFailed
from oncelog.client.programs.doubt import DOUBT_CONNECT_MS, DOUBT_MS
from oncelog.client.programs.steps import Program, Sleep
from oncelog.client.programs.transactions import TransactionalDelivery
from oncelog.wire.message import Response as ResponseMessage
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.metadata import MetadataRequest
from oncelog.wire.messages.produce import ProduceRequest
from tests.unit.client.programs.fake_answers import Log, with_feature
from tests.unit.client.programs.fake_brokers import CONFIG, FakeBrokers, Runner
from tests.unit.client.programs.fake_brokers import runner as runner

PARTITIONS = [TopicPartition(TopicName("t"), index) for index in range(2)]


class Producer(Delivery):
    """A producer of either kind, for one driver."""

    def __init__(self, runner: Runner, settings: ProducerSettings | None = None, *, idempotent: bool = True) -> None:
        super().__init__(runner.cluster, settings or ProducerSettings(), idempotent=idempotent)
        self.runner = runner

    def add(self, partition: int, value: bytes) -> None:
        self.machine.add(
            PARTITIONS[partition], checked_record("t", partition, value, None, (), 0), self.runner.now_ms()
        )

    def flushing(self) -> Program[None]:
        return self._flushing()


class TransactionalProducer(TransactionalDelivery, Producer):
    """The same, with transactions; initialized."""

    def __init__(self, runner: Runner) -> None:
        Producer.__init__(self, runner)
        self._transactional_id = "x"
        self.machine = type(self.machine)(self.machine.settings, transactional=True)
        self._open_transactions(TransactionSettings("x"))
        runner.run(self._initializing(False))

    def committing(self) -> Program[None]:
        return self._committing()

    def aborting(self) -> Program[None]:
        return self._aborting()


def pause() -> Program[None]:
    """Let what was begun end."""
    yield Sleep(100)


def test_records_of_two_leaders_are_sent_side_by_side(runner: Runner) -> None:
    log, producer = Log(runner.brokers), Producer(runner)
    for value in (b"one", b"two"):
        producer.add(0, value)
        producer.add(1, value)
    runner.run(producer.flushing())
    assert [b"one" in batches[0] and b"two" in batches[0] for batches in log.appended.values()] == [True, True]
    assert sorted(runner.brokers.asked(ProduceRequest)) == [1, 3]


def test_a_batch_is_sent_again_to_the_new_leader(runner: Runner) -> None:
    log, producer = Log(runner.brokers), Producer(runner)
    answer = runner.brokers.answers[ProduceRequest]

    def moving(broker: int, message: ProduceRequest) -> ResponseMessage | None:
        runner.brokers.leaders["t"] = {0: 2, 1: 3}
        log.codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER] if broker == 1 else []
        return answer(broker, message)

    runner.brokers.answers[ProduceRequest] = moving
    producer.add(0, b"one")
    runner.run(producer.flushing())
    assert runner.brokers.asked(ProduceRequest) == [1, 2]
    assert len(log.appended[0]) == 1


def freeze_at_first_batch(brokers: FakeBrokers, leader: int, other_leader: int = 3) -> None:
    """Let broker 1 answer nothing any more once it gets a batch, and another lead partition 0 instead."""
    answers, frozen = dict(brokers.answers), set()

    def freezing(broker: int, message: Any) -> ResponseMessage | None:
        if isinstance(message, ProduceRequest) and broker == 1:
            frozen.add(broker)
            brokers.leaders["t"] = {0: leader, 1: other_leader}
        return None if broker in frozen else answers[type(message)](broker, message)

    brokers.answers |= dict.fromkeys(answers, freezing)


def test_a_silent_leader_is_left_once_another_leads(runner: Runner) -> None:
    log, producer, brokers = Log(runner.brokers), Producer(runner), runner.brokers
    freeze_at_first_batch(brokers, 2)
    producer.add(0, b"one")
    runner.run(producer.flushing())
    assert brokers.asked(ProduceRequest) == [1, 2]
    assert len(log.appended[0]) == 1
    assert DOUBT_MS <= runner.now_ms() <= DOUBT_MS + 300


def test_a_silent_leader_is_left_by_a_producer_that_only_polls(runner: Runner) -> None:
    log, producer, brokers = Log(runner.brokers), Producer(runner), runner.brokers
    freeze_at_first_batch(brokers, 2)

    def polling() -> Program[None]:
        while runner.now_ms() < DOUBT_MS + 500:
            yield from producer._stepping(flush=False, waits=False)
            yield Sleep(20)

    producer.add(0, b"one")
    runner.run(polling())
    assert brokers.asked(ProduceRequest) == [1, 2]
    assert len(log.appended[0]) == 1


def test_a_frozen_leader_of_other_partitions_hardly_delays_the_rest(runner: Runner) -> None:
    """One of its two partitions has moved; the other stays, and is tried again and again."""
    log, producer, brokers = Log(runner.brokers), Producer(runner), runner.brokers
    brokers.leaders["t"] = {0: 1, 1: 1}
    freeze_at_first_batch(brokers, 2, other_leader=1)
    times: list[int] = []

    def delivering() -> Program[None]:
        while runner.now_ms() < 30_000:
            delivered = len(log.appended.get(0, ()))
            if delivered == len(times):
                producer.add(0, b"one")
            yield from producer._stepping(flush=True, waits=True)
            times.extend([runner.now_ms()] * (len(log.appended.get(0, ())) - delivered))

    runner.run(producer._keep_identity())
    runner.run(runner.cluster.link(1))
    brokers.unreachable.add(1)
    producer.add(1, b"stays")
    runner.run(delivering())
    assert times[0] <= DOUBT_MS + DOUBT_CONNECT_MS + 300
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert max(gaps) <= CONFIG.open_timeout_ms + 300
    assert sum(gap > DOUBT_CONNECT_MS for gap in gaps) <= 10


def test_a_leader_that_was_silent_and_is_far_away_is_reached_again(runner: Runner) -> None:
    log, producer, brokers = Log(runner.brokers), Producer(runner), runner.brokers
    brokers.leaders["t"] = {0: 1}
    brokers.connect_ms[1] = CONFIG.open_timeout_ms - 100
    producer._doubt.add_silent(1)
    producer.add(0, b"one")
    runner.run(producer.flushing())
    assert len(log.appended[0]) == 1
    assert not producer._doubt._silent


def test_the_next_broker_is_asked_when_one_cannot_be_reached(runner: Runner) -> None:
    log, producer, brokers = Log(runner.brokers), Producer(runner), runner.brokers
    freeze_at_first_batch(brokers, 3)
    brokers.unreachable.add(2)
    producer.add(0, b"one")
    runner.run(producer.flushing())
    assert brokers.asked(ProduceRequest) == [1, 3]
    assert len(log.appended[0]) == 1
    assert runner.now_ms() <= DOUBT_MS + 2 * DOUBT_CONNECT_MS + 300


def test_a_question_that_finds_nobody_hardly_delays_the_answer(runner: Runner) -> None:
    log, producer, brokers = Log(runner.brokers), Producer(runner), runner.brokers
    brokers.leaders["t"] = {0: 1}
    producer.add(0, b"one")
    runner.run(producer.flushing())
    began_ms = runner.now_ms()
    brokers.unreachable |= {2, 3}
    brokers.slow_ms[1] = DOUBT_MS + 200
    producer.add(0, b"two")
    runner.run(producer.flushing())
    assert len(log.appended[0]) == 2
    assert runner.now_ms() - began_ms <= DOUBT_MS + DOUBT_CONNECT_MS + 100


def test_a_question_ends_no_request_of_a_slow_cluster(runner: Runner) -> None:
    log, producer = Log(runner.brokers), Producer(runner, idempotent=False)
    for partition in range(2):
        producer.add(partition, b"first")
    runner.run(producer.flushing())
    began_ms = runner.now_ms()
    runner.brokers.slow_ms |= dict.fromkeys((1, 2, 3), DOUBT_MS + 600)

    def sending() -> Program[None]:
        producer.add(0, b"one")
        while runner.now_ms() < began_ms + 1000:
            yield from producer._stepping(flush=True, waits=True)
        producer.add(1, b"two")
        yield from producer.flushing()

    runner.run(sending())
    assert {partition: len(batches) for partition, batches in log.appended.items()} == {0: 2, 1: 2}
    open_links = [link for link in runner.brokers.links if link.is_open]
    assert open_links == list(dict.fromkeys(runner.cluster.links.values())), "the question's connection is closed"


def test_a_slow_leader_that_leads_still_is_waited_for(runner: Runner) -> None:
    log, producer = Log(runner.brokers), Producer(runner)
    producer.add(0, b"one")
    runner.run(producer.flushing())
    runner.brokers.slow_ms[1] = 2 * DOUBT_MS + 500
    before = len(runner.brokers.asked(MetadataRequest))
    producer.add(0, b"two")
    runner.run(producer.flushing())
    assert runner.brokers.asked(ProduceRequest) == [1, 1]
    assert len(log.appended[0]) == 2
    assert runner.brokers.asked(MetadataRequest)[before:] == [2, 3, 2], "others are asked, after pauses that grow"


def test_a_record_that_is_not_acknowledged_has_been_written_when_flush_returns(runner: Runner) -> None:
    log, producer = Log(runner.brokers), Producer(runner, ProducerSettings(acks=0))
    runner.run(runner.cluster.link()).abort()
    producer.add(0, b"one")
    runner.run(producer.flushing())
    for link in runner.cluster.close():
        link.abort()
    runner.run(pause())
    assert [b"one" in batch for batch in log.appended[0]] == [True]


def test_a_request_without_answer_that_cannot_be_written_is_sent_again(runner: Runner) -> None:
    log, producer = Log(runner.brokers), Producer(runner, ProducerSettings(acks=0))
    answer, brokers = runner.brokers.answers[ProduceRequest], runner.brokers

    def breaking(broker: int, message: ProduceRequest) -> ResponseMessage | None:
        if len(brokers.asked(ProduceRequest)) == 1:
            raise ConnectionLost("the connection broke")
        return answer(broker, message)

    brokers.answers[ProduceRequest] = breaking
    producer.add(0, b"one")
    runner.run(producer.flushing())
    assert (len(log.appended[0]), brokers.asked(ProduceRequest)) == (1, [1, 1])
    brokers.answers[ProduceRequest] = lambda *_: _raise(AuthenticationFailed("the session is over"))
    producer.add(0, b"two")
    with pytest.raises(AuthenticationFailed):
        runner.run(producer.flushing())
    assert len(log.appended[0]) == 1


def _raise(error: ClientError) -> ResponseMessage:
    raise error


def test_a_refused_record_is_raised_by_flush(runner: Runner) -> None:
    log, producer = Log(runner.brokers), Producer(runner)
    log.codes = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    producer.add(0, b"one")
    with pytest.raises(DeliveryFailed, match="1 record for t-0 not written"):
        runner.run(producer.flushing())
    runner.run(producer.flushing())


def test_the_link_is_closed_under_answers_that_are_given_up(runner: Runner) -> None:
    Log(runner.brokers)
    producer = Producer(runner)
    producer.add(0, b"one")
    runner.run(producer._stepping(flush=True, waits=False))
    producer._abandon()
    runner.run(pause())
    assert not runner.cluster.links[1].is_open


@pytest.mark.parametrize("level", [1, 2])
def test_a_transaction_is_committed_with_its_records(runner: Runner, level: int) -> None:
    log = Log(runner.brokers)
    with_feature(runner, level)
    producer = TransactionalProducer(runner)
    for number in range(2):
        producer.begin()
        producer.add(0, b"%d" % number)
        runner.run(producer.committing())
    assert (len(log.appended[0]), log.ended) == (2, [True, True])


def test_an_abort_drops_what_is_not_sent(runner: Runner) -> None:
    log = Log(runner.brokers)
    with_feature(runner, 1)
    producer = TransactionalProducer(runner)
    producer.begin()
    producer.add(0, b"sent")
    runner.run(producer._stepping(flush=True, waits=False))
    producer.add(1, b"not sent")
    runner.run(producer.aborting())
    assert (log.ended, 1 in log.appended, producer.state) == ([False], False, State.READY)


def test_a_batch_that_is_refused_costs_the_transaction(runner: Runner) -> None:
    log = Log(runner.brokers)
    with_feature(runner, 2)
    producer = TransactionalProducer(runner)
    producer.begin()
    log.codes = [ErrorCode.MESSAGE_TOO_LARGE]
    producer.add(0, b"one")
    with pytest.raises(TransactionFailed, match="records of the transaction for t-0"):
        runner.run(producer.committing())
    runner.run(producer.aborting())
    assert log.ended == [False]


def test_a_commit_follows_its_coordinator(runner: Runner) -> None:
    log = Log(runner.brokers)
    with_feature(runner, 2)
    producer = TransactionalProducer(runner)
    producer.begin()
    producer.add(0, b"one")
    log.end_codes = [ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS]
    runner.run(producer.committing())
    assert (log.ended, len(runner.brokers.asked(EndTxnRequest))) == ([True], 3)
    assert len(runner.brokers.asked(FindCoordinatorRequest)) == 2
    producer.begin()
    producer.add(0, b"two")
    log.end_codes = [ErrorCode.INVALID_PRODUCER_EPOCH]
    with pytest.raises(ProducerFenced):
        runner.run(producer.committing())
