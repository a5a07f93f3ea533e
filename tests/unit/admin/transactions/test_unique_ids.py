"""An id is listed once, though its coordinator moves while brokers are asked, and what may be missing is named."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.admin.transactions import id_pages as sorted_ids_module
from oncelog.admin.transactions.id_pages import page_of_ids, sorted_ids
from oncelog.admin.transactions.transactional_ids import ListFilter, list_transactions
from oncelog.base.ids import TRANSACTION_STATE, TopicPartition
from oncelog.wire.message import RESPONSE_MAX_ELEMENTS
from oncelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse, TransactionState
from oncelog.wire.reader import CompactReader
from tests.programs import program_of
from tests.unit.admin.transactions.cluster import FakeCluster

pytestmark = pytest.mark.usefixtures("driver")

OF_X = TopicPartition(TRANSACTION_STATE, 0)
FILTER = ListFilter(producer_ids=(7, 8))
FIRST = ("x", "Ongoing", 1)


class Moving(FakeCluster):
    """Broker 1 coordinates x, and broker 2 another id. Broker 2 tells x, too, as complete."""

    def __init__(self) -> None:
        super().__init__()
        self.know("x", 7)
        self.know("other", 8)
        self.lead({TopicPartition(TRANSACTION_STATE, index): 2 for index in range(1, 4)})
        self.asked_brokers: list[int] = []
        self.rules[ListTransactionsRequest] = self._tell
        self.moves_to: int | None = None
        """The broker that leads x's partition once broker 1 has answered."""

    def _tell(self, broker: int, _message: Any) -> Any:
        return ListTransactionsResponse(transaction_states=self.told_by(broker))

    def told_by(self, broker: int) -> list[TransactionState]:
        self.asked_brokers.append(broker)
        if self.moves_to is not None:
            self.lead({OF_X: self.moves_to}, leader_epoch=1)
        x = TransactionState(transactional_id="x", producer_id=7, transaction_state="Ongoing")
        if broker == 1:
            return [x]
        x.transaction_state = "CompleteCommit"
        return [x, TransactionState(transactional_id="other", producer_id=8, transaction_state="Empty")]

    def reader(self, broker: int) -> CompactReader:
        """An answer as it is read a row at a time."""
        body = ListTransactionsResponse(transaction_states=self.told_by(broker)).encode(2)
        reader = CompactReader(memoryview(b"".join(map(bytes, body))), RESPONSE_MAX_ELEMENTS)
        reader.int32(), reader.int16(), reader.string_array()
        return reader


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Moving:
    made = Moving()
    monkeypatch.setattr(
        "oncelog.admin.transactions.id_pages.IdAnswers.of",
        program_of(lambda _answers, broker: made.reader(broker)),
    )
    return made


def listed(cluster: Moving) -> list[tuple[list[tuple[str, str, int]], list[str]]]:
    """Rows and remarks of each way to list ids."""
    results: list[Any] = [
        list_transactions(cluster, FILTER),
        sorted_ids(cluster, FILTER),
        page_of_ids(cluster, FILTER),
        *(sorted_ids(cluster, FILTER, key=key) for key in (lambda row: row.coordinator, lambda row: row.state)),
    ]
    actual = []
    for result in results:
        rows = [(row.transactional_id, row.state, row.coordinator) for row in getattr(result, "rows", result)]
        if hasattr(result, "total"):
            assert result.total == len(rows)
        elif not hasattr(result, "rows"):
            assert len(result) == len(rows)
        actual.append((sorted(rows), list(map(str, result.unanswered))))
    return actual


def test_an_id_that_two_brokers_tell_is_told_by_its_coordinator(cluster: Moving, monkeypatch: Any) -> None:
    for run in (1, 20_000):
        monkeypatch.setattr(sorted_ids_module, "RUN", run)
        assert listed(cluster) == [([("other", "Empty", 2), FIRST], [])] * 5


def test_a_coordinator_that_moves_meanwhile_is_named(cluster: Moving) -> None:
    results = []
    for way in (list_transactions, sorted_ids, page_of_ids):
        cluster.lead({OF_X: 1})
        cluster.moves_to = 2
        result: Any = way(cluster, FILTER)
        rows = [(row.transactional_id, row.coordinator) for row in getattr(result, "rows", result)]
        results.append((rows, [(item.subject, item.broker) for item in result.unanswered]))
    assert results == [([("other", 2), ("x", 2)], [("__transaction_state partition 0", None)])] * 3


def test_where_none_of_those_that_tell_it_leads_both_stay_and_that_is_said(cluster: Moving) -> None:
    cluster.lead({OF_X: -1})
    for rows, remarks in listed(cluster):
        assert rows == [("other", "Empty", 2), ("x", "CompleteCommit", 2), FIRST]
        assert any("brokers 1, 2 tell it" in remark for remark in remarks), remarks


def test_without_a_view_of_the_log_all_stay(cluster: Moving) -> None:
    del cluster.view.topics[TRANSACTION_STATE]
    assert len(list_transactions(cluster, FILTER).rows) == 3
