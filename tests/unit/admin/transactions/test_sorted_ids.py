"""Sorted ids are the list of ids, whatever the order and however many runs there are of them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from oncelog.admin.transactions import id_pages as module
from oncelog.admin.transactions.id_pages import IdAnswers, sorted_ids
from oncelog.admin.transactions.transactional_ids import ListFilter, list_transactions
from oncelog.client.blocking import Client
from oncelog.client.errors import BrokerRefused
from oncelog.client.programs import Cluster
from oncelog.testing.broker import Broker
from oncelog.wire.message import RESPONSE_MAX_ELEMENTS
from oncelog.wire.messages.list_transactions import ListTransactionsResponse, TransactionState
from oncelog.wire.reader import CompactReader
from tests.interop.admin.lab import ByHand
from tests.programs import program_of

IDS = [f"id-{number}" for number in range(9)] + ["z\u202e", "ä", "\U0001f375"]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Broker() as broker, Client(broker.bootstrap_servers) as made:
        for name in random.Random(7).sample(IDS, len(IDS)):
            ByHand(made, name)
        yield made


@pytest.mark.slow
def test_they_are_the_list_as_often_as_they_are_read(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for run in (1, 3, 20_000):
        monkeypatch.setattr(module, "RUN", run)
        ids = sorted_ids(client)
        every = list_transactions(client)
        assert [*ids] == [*ids] == every.rows
        assert (len(ids), ids.unanswered, ids.answered) == (len(IDS), every.unanswered, every.answered)
        by_producer = sorted_ids(client, key=lambda row: (row.producer_id, row.transactional_id))
        assert [*by_producer] == sorted(every.rows, key=lambda row: (row.producer_id, row.transactional_id))


@pytest.mark.slow
def test_filters_and_coordinators_are_the_lists(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [id_.transactional_id for id_ in sorted_ids(client, ListFilter(pattern="id-[12]"))] == ["id-1", "id-2"]
    with pytest.raises(BrokerRefused):
        sorted_ids(client, ListFilter(("Nothing",)))
    away = sorted_ids(client, coordinators=[77])
    assert ([*away], away.answered, [item.broker for item in away.unanswered]) == ([], 0, [77])
    monkeypatch.setattr("oncelog.admin.transactions.id_pages.too_old", program_of(lambda *_: "it is too old"))
    assert [item.reason for item in sorted_ids(client).unanswered] == ["it is too old"]


def test_an_answer_that_breaks_off_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when all of an answer is read at once: half of a coordinator's ids would look like all of them."""
    states = [TransactionState(transactional_id=name, producer_id=1, transaction_state="Empty") for name in IDS]
    body = b"".join(ListTransactionsResponse(transaction_states=states).encode(2))
    cut = body[:-1].replace(b"\x05id-8", b"\x7fid-8")

    def reader(self: IdAnswers, broker: int) -> CompactReader:
        ids = CompactReader(body if broker == 1 else cut, RESPONSE_MAX_ELEMENTS)
        ids.int32(), ids.int16(), ids.string_array()
        return ids

    monkeypatch.setattr(IdAnswers, "of", program_of(reader))
    monkeypatch.setattr(module, "RUN", 2)
    client = Client("127.0.0.1:9")
    monkeypatch.setattr(Cluster, "refresh_brokers", program_of(lambda self: None))
    ids = sorted_ids(client, coordinators=[1, 2])
    assert [id_.transactional_id for id_ in ids] == sorted(IDS)
    assert (ids.answered, [item.broker for item in ids.unanswered]) == (1, [2])
