"""Markers for other brokers: which share a request, and what an answer says of each."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, ProducerEpoch, ProducerId, TopicName, TopicPartition
from oncelog.handlers.broker.ports import Marker
from oncelog.node.brokers.broker_links import LinkPurpose
from oncelog.node.brokers.messages import UNREACHABLE, WriteMarker
from oncelog.node.brokers.requests.batched import MOST_MARKERS, MarkerRequests
from oncelog.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from tests.unit.node.brokers.requests.links import FakeLinks

OTHER = BrokerId(2)


def marker(
    producer_id: int, partition: int, *, epoch: int = 0, topic: str = "t", committed: bool = True
) -> WriteMarker:
    end = Marker(ProducerId(producer_id), ProducerEpoch(epoch), 3, committed, 2)
    return WriteMarker(TopicPartition(TopicName(topic), partition), end)


def response(*outcomes: tuple[int, int, int]) -> WriteTxnMarkersResponse:
    """Producer id, partition of topic ``t``, and its error."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name="t",
                        partitions=[WritableTxnMarkerPartitionResult(partition_index=partition, error_code=error_code)],
                    )
                ],
            )
            for producer_id, partition, error_code in outcomes
        ]
    )


class Bench:
    def __init__(self) -> None:
        self.links = FakeLinks()
        self.requests = MarkerRequests(self.links, 30_000)
        self.answers: list[Any] = []

    def send(self, *messages: WriteMarker) -> None:
        for message in messages:
            self.requests.send(OTHER, message, self.answers.append)
        self.requests.send_queued()

    def markers(self) -> list[tuple[int, bool, dict[str, list[int]]]]:
        """Producer id, outcome and partitions in the request that is under way."""
        (requests,) = self.links.asked
        return [
            (
                producer.producer_id,
                producer.transaction_result,
                {topic.name: topic.partition_indexes for topic in producer.topics},
            )
            for producer in requests.message.markers
        ]


def test_the_markers_of_one_event_share_a_request() -> None:
    bench = Bench()
    bench.send(marker(1, 0), marker(2, 0, committed=False), marker(1, 1), marker(1, 0, topic="u"))
    assert bench.markers() == [(1, True, {"t": [0, 1], "u": [0]}), (2, False, {"t": [0]})]
    assert bench.links.asked[0].purpose is LinkPurpose.MARKERS
    first = bench.links.asked[0].message.markers[0]
    assert (first.producer_epoch, first.coordinator_epoch, first.transaction_version) == (0, 3, 2)


def test_what_comes_while_a_request_is_under_way_goes_with_the_next() -> None:
    bench = Bench()
    bench.send(marker(1, 0))
    bench.send(marker(2, 0))
    bench.send(marker(3, 0))
    assert [item[0] for item in bench.markers()] == [1]
    bench.links.answer(response((1, 0, 0)))
    bench.send()
    assert [item[0] for item in bench.markers()] == [2, 3]


def test_two_transactions_of_one_producer_do_not_share_a_request() -> None:
    """Its result could not be told apart."""
    bench = Bench()
    bench.send(marker(1, 0), marker(1, 1, epoch=1), marker(2, 0))
    assert [item[0] for item in bench.markers()] == [1]
    bench.links.answer(response((1, 0, 0)))
    bench.send()
    assert [item[0] for item in bench.markers()] == [1, 2]


def test_a_request_is_bounded() -> None:
    bench = Bench()
    bench.send(*(marker(1, number) for number in range(MOST_MARKERS + 1)))
    ((_, _, topics),) = bench.markers()
    assert len(topics["t"]) == MOST_MARKERS


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (response((1, 0, 0), (2, 0, 0)), [ErrorCode.NONE, ErrorCode.NONE]),
        (response((2, 0, 6), (1, 0, 0)), [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]),
        (response((1, 0, 0)), [ErrorCode.NONE, UNREACHABLE]),
        (response((1, 1, 0), (2, 0, 0)), [UNREACHABLE, ErrorCode.NONE]),
        (response((1, 0, 999), (2, 0, 0)), [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]),
        (response(), [UNREACHABLE, UNREACHABLE]),
        (None, [UNREACHABLE, UNREACHABLE]),
    ],
)
def test_only_what_the_answer_names_without_an_error_is_written(answer: Any, expected: list[object]) -> None:
    bench = Bench()
    bench.send(marker(1, 0), marker(2, 0))
    bench.links.answer(answer)
    assert bench.answers == expected


def test_a_forgotten_marker_is_not_sent() -> None:
    bench = Bench()
    forget = bench.requests.send(OTHER, marker(1, 0), bench.answers.append)
    forget()
    bench.requests.send_queued()
    assert bench.links.asked == []
