"""Partitions of transactions that other brokers coordinate: requests, and the replies that are made of answers."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, ProducerEpoch, ProducerId, TopicName, TopicPartition, TransactionalId
from oncelog.core.transactions.identity import Identity
from oncelog.core.transactions.model import AddReply, AddRequest, VerifyReply
from oncelog.handlers.broker.context import CoordinatorRefusal
from oncelog.node.brokers.broker_links import LinkPurpose
from oncelog.node.brokers.messages import UNREACHABLE, AddPartitions
from oncelog.node.brokers.requests.batched import MOST_BYTES, PartitionRequests
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from tests.unit.node.brokers.requests.links import FakeLinks

OTHER = BrokerId(2)
T0, T1 = TopicPartition(TopicName("t"), 0), TopicPartition(TopicName("t"), 1)
NONE, REFUSED = ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE


def question(name: str, *partitions: TopicPartition, verify_only: bool = True) -> AddPartitions:
    identity = Identity(ProducerId(7), ProducerEpoch(1))
    return AddPartitions(AddRequest(TransactionalId(name), identity, partitions, 2, verify_only=verify_only))


def result(name: str, **outcomes: int) -> AddPartitionsToTxnResult:
    """By partition of topic ``t``: ``p0=0``."""
    return AddPartitionsToTxnResult(
        transactional_id=name,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name="t",
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=int(key[1:]), partition_error_code=error_code)
                    for key, error_code in outcomes.items()
                ],
            )
        ],
    )


def response(*results: AddPartitionsToTxnResult, error_code: int = 0) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(error_code=error_code, results_by_transaction=list(results))


class Bench:
    def __init__(self) -> None:
        self.links = FakeLinks()
        self.requests = PartitionRequests(self.links, LinkPurpose.VERIFICATION, 30_000)
        self.answers: list[Any] = []

    def send(self, *questions: AddPartitions) -> None:
        for item in questions:
            self.requests.send(OTHER, item, self.answers.append)
        self.requests.send_queued()

    def asked(self) -> list[list[str]]:
        """Transactional ids, by request."""
        return [
            [transaction.transactional_id for transaction in asked.message.transactions] for asked in self.links.asked
        ]


def test_the_questions_of_one_event_share_a_request() -> None:
    bench = Bench()
    bench.send(question("x", T0, T1), question("y", T0))
    assert bench.asked() == [["x", "y"]]
    first = bench.links.asked[0].message.transactions[0]
    assert (first.producer_id, first.producer_epoch, first.verify_only) == (7, 1, True)
    assert [(topic.name, topic.partitions) for topic in first.topics] == [("t", [0, 1])]
    bench.links.answer(response(result("y", p0=0), result("x", p0=0, p1=REFUSED)))
    assert bench.answers == [VerifyReply(NONE, {T0: NONE, T1: REFUSED}), VerifyReply(NONE, {T0: NONE})]


def test_one_id_is_asked_about_once_in_a_request() -> None:
    bench = Bench()
    bench.send(question("x", T0), question("x", T1), question("y", T0))
    assert bench.asked() == [["x"], ["x", "y"]]


def test_a_request_is_bounded_in_bytes() -> None:
    bench = Bench()
    long = "n" * (MOST_BYTES // 10)
    bench.send(*(question(f"{long}{number}", T0) for number in range(3)))
    assert [len(names) for names in bench.asked()] == [2, 1]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (response(result("x", p0=0, p1=0)), AddReply(NONE)),
        (response(result("x", p0=48, p1=48)), AddReply(ErrorCode.INVALID_TXN_STATE)),
        (response(result("x", p0=55, p1=3)), AddReply(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
        (response(result("x", p0=0, p1=3)), AddReply(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
        (response(result("x", p0=0, p1=999)), AddReply(ErrorCode.UNKNOWN_SERVER_ERROR)),
        (response(result("x", p0=0)), UNREACHABLE),
        (response(result("y", p0=0, p1=0)), UNREACHABLE),
        (response(), UNREACHABLE),
        (None, UNREACHABLE),
    ],
)
def test_partitions_are_added_only_if_the_answer_says_so_of_each(answer: Any, expected: object) -> None:
    bench = Bench()
    bench.send(question("x", T0, T1, verify_only=False))
    bench.links.answer(answer)
    assert bench.answers == [expected]


def test_an_error_of_the_whole_request_is_a_refusal() -> None:
    bench = Bench()
    bench.send(question("x", T0), question("y", T0))
    bench.links.answer(response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert [type(answer) for answer in bench.answers] == [CoordinatorRefusal] * 2
    assert bench.answers[0].error_code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
