"""Finding the transactional ids of producers whose transactions another broker coordinates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TRANSACTION_STATE, BrokerId, LeaderEpoch, ProducerId
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.image.model import PartitionImage, TopicImage
from oncelog.node.brokers.messages import UNREACHABLE, FindTransactionalIds
from oncelog.node.brokers.requests.listings import TransactionalIds
from oncelog.wire.messages.list_transactions import ListTransactionsResponse, TransactionState
from tests.unit.node.brokers.requests.links import FakeLinks

ME, OTHER = BrokerId(1), BrokerId(2)


class Bench:
    def __init__(self) -> None:
        self.links = FakeLinks()
        partitions = [
            PartitionImage(each, LeaderEpoch(n), (each,), (each,)) for n, each in enumerate((OTHER, ME, OTHER))
        ]
        topic = TopicImage(TRANSACTION_STATE, b"t" * 16, tuple(partitions))
        metadata: Any = SimpleNamespace(image=ClusterImage(topics={TRANSACTION_STATE: topic}))
        self.answers: list[Any] = []
        message = FindTransactionalIds(frozenset({ProducerId(8), ProducerId(7)}))
        self.forget = TransactionalIds(self.links, metadata).send(OTHER, message, self.answers.append)


def test_what_is_open_or_decided_is_asked_for_where_the_other_is_believed_to_lead() -> None:
    (requests,) = Bench().links.asked
    assert requests.message.producer_id_filters == [7, 8]
    assert requests.message.state_filters == ["Ongoing", "PrepareCommit", "PrepareAbort"]
    assert (requests.message.led_partitions, requests.message.leader_epochs) == ([0, 2], [0, 2])


def test_the_answer_is_the_id_by_producer() -> None:
    bench = Bench()
    bench.links.answer(
        ListTransactionsResponse(transaction_states=[TransactionState(transactional_id="x", producer_id=7)])
    )
    assert bench.answers == [{7: "x"}]


@pytest.mark.parametrize(
    "response",
    [
        None,
        ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        ListTransactionsResponse(error_code=ErrorCode.NOT_COORDINATOR),
        ListTransactionsResponse(unknown_state_filters=["Ongoing"]),
    ],
)
def test_an_error_is_no_answer(response: ListTransactionsResponse | None) -> None:
    bench = Bench()
    bench.links.answer(response)
    assert bench.answers == [UNREACHABLE]


def test_a_question_can_be_forgotten() -> None:
    bench = Bench()
    bench.forget()
    assert bench.links.asked == []
