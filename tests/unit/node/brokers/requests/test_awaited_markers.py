"""Waiting for markers of transactions that another broker coordinates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CONSUMER_OFFSETS, TRANSACTION_STATE, BrokerId, LeaderEpoch, ProducerId, TopicPartition
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.image.model import PartitionImage, TopicImage
from oncelog.node.brokers.messages import UNREACHABLE, AwaitMarkers
from oncelog.node.brokers.requests.listings import LONGEST_RETRY_MS, MOST_FILTERED, AwaitedMarkers
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.wire.messages.list_transactions import ListTransactionsResponse, TransactionState
from tests.unit.node.brokers.requests.links import FakeLinks

ME, OTHER = BrokerId(1), BrokerId(2)
HERE = TopicPartition(CONSUMER_OFFSETS, 0)
A, B = ProducerId(7), ProducerId(8)


def listed(*producer_ids: int, error_code: int = 0) -> ListTransactionsResponse:
    states = [TransactionState(transactional_id=f"x{id_}", producer_id=id_) for id_ in producer_ids]
    return ListTransactionsResponse(error_code=error_code, transaction_states=states)


class Bench:
    def __init__(self) -> None:
        self.links = FakeLinks()
        self.deadlines = Deadlines()
        leaders = (OTHER, ME, OTHER)
        partitions = [PartitionImage(each, LeaderEpoch(n), (each,), (each,)) for n, each in enumerate(leaders)]
        topic = TopicImage(TRANSACTION_STATE, b"t" * 16, tuple(partitions))  # any id does
        metadata: Any = SimpleNamespace(image=ClusterImage(topics={TRANSACTION_STATE: topic}))
        self.awaited = AwaitedMarkers(self.links, metadata, self.deadlines)
        self.answers: list[Any] = []

    def ask(self, *producer_ids: ProducerId) -> Any:
        return self.awaited.send(OTHER, AwaitMarkers(HERE, frozenset(producer_ids)), self.answers.append)

    def pass_time(self, milliseconds: int = LONGEST_RETRY_MS) -> None:
        self.deadlines.now_ms += milliseconds
        self.deadlines.run_due(self.deadlines.now_ms)

    @property
    def question(self) -> Any:
        (requests,) = self.links.asked
        return requests.message


def test_the_question_names_producers_states_and_what_the_other_is_believed_to_lead() -> None:
    bench = Bench()
    bench.ask(B, A)
    assert bench.question.producer_id_filters == [A, B]
    assert bench.question.state_filters == ["PrepareCommit", "PrepareAbort"]
    assert (bench.question.led_partitions, bench.question.leader_epochs) == ([0, 2], [0, 2])


def test_nothing_decided_is_nothing_to_wait_for() -> None:
    bench = Bench()
    bench.ask(A)
    bench.links.answer(listed())
    assert bench.answers == [None]
    assert not bench.awaited.is_awaited(HERE, A)


def test_a_decided_transaction_is_waited_for_until_its_marker_is_here() -> None:
    bench = Bench()
    bench.ask(A, B)
    assert bench.awaited.is_awaited(HERE, B)
    bench.links.answer(listed(A))
    assert not bench.awaited.is_awaited(HERE, B)
    assert bench.answers == []
    bench.awaited.marked(HERE, B)
    bench.awaited.marked(TopicPartition(CONSUMER_OFFSETS, 1), A)
    assert bench.answers == []
    bench.awaited.marked(HERE, A)
    assert bench.answers == [None]
    bench.pass_time()
    assert bench.links.asked == []


def test_a_marker_that_comes_before_the_answer_counts() -> None:
    bench = Bench()
    bench.ask(A, B)
    bench.awaited.marked(HERE, A)
    bench.links.answer(listed(A))
    assert bench.answers == [None]


def test_or_until_it_is_complete() -> None:
    """It has had its marker before, or has never written here."""
    bench = Bench()
    bench.ask(A, B)
    bench.links.answer(listed(A))
    bench.pass_time()
    assert bench.question.producer_id_filters == [A]
    bench.links.answer(listed())
    assert bench.answers == [None]


def test_a_coordinator_that_is_loading_is_asked_again() -> None:
    bench = Bench()
    bench.ask(A)
    bench.links.answer(listed(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert bench.links.asked == []
    bench.pass_time()
    bench.links.answer(listed())
    assert bench.answers == [None]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        listed(error_code=ErrorCode.NOT_COORDINATOR),
        listed(error_code=999),
        ListTransactionsResponse(unknown_state_filters=["PrepareAbort"]),
    ],
)
def test_what_is_no_answer_says_nothing(answer: Any) -> None:
    bench = Bench()
    bench.ask(A)
    bench.links.answer(answer)
    assert bench.answers == [UNREACHABLE]


@pytest.mark.parametrize("when", ["asked", "waiting"])
def test_who_left_is_forgotten(when: str) -> None:
    bench = Bench()
    forget = bench.ask(A)
    if when == "waiting":
        bench.links.answer(listed(A))
    forget()
    bench.awaited.marked(HERE, A)
    bench.pass_time()
    assert (bench.answers, bench.links.asked) == ([], [])
    assert not bench.awaited.is_awaited(HERE, A)


def test_very_many_producers_are_not_named() -> None:
    bench = Bench()
    bench.ask(*map(ProducerId, range(MOST_FILTERED + 1)))
    assert bench.question.producer_id_filters == []
    bench.links.answer(listed(MOST_FILTERED + 7))
    assert bench.answers == [None]
