"""Pages of transactional ids: the same ids as the whole list, in order, forwards and backwards, with their counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oncelog.admin.transactions.id_pages import IdPage, page_of_ids
from oncelog.admin.transactions.transactional_ids import ListFilter, list_transactions
from oncelog.client.blocking import Client
from oncelog.client.errors import BrokerRefused
from oncelog.testing.broker import Broker
from tests.interop.admin.lab import ByHand
from tests.programs import program_of

pytestmark = pytest.mark.slow
IDS = [f"id-{number}" for number in range(7)] + ["z\u202e"]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Broker() as broker, Client(broker.bootstrap_servers) as made:
        assert page_of_ids(made) == IdPage([], 0, 0, page_of_ids(made).unanswered)
        for name in reversed(IDS):
            ByHand(made, name)
        yield made


def test_pages_forwards_are_the_list(client: Client) -> None:
    every = list_transactions(client).rows
    assert [row.transactional_id for row in every] == IDS
    result, ahead = [], []
    page = page_of_ids(client, count=3)
    while True:
        result += page.rows
        ahead.append(page.ahead)
        assert (page.total, page.unanswered) == (8, [])
        if not page.has_more:
            break
        page = page_of_ids(client, count=3, after=page.rows[-1].transactional_id)
    assert (result, ahead) == (every, [0, 3, 6])


def test_pages_backwards_end_at_the_first(client: Client) -> None:
    page = page_of_ids(client, count=3, before="id-5")
    assert ([row.transactional_id for row in page.rows], page.ahead, page.has_more) == (IDS[2:5], 2, True)
    page = page_of_ids(client, count=3, before="id-2")
    assert ([row.transactional_id for row in page.rows], page.ahead) == (IDS[:2], 0)
    assert page_of_ids(client, count=3, before="a").rows == []
    assert page_of_ids(client, after="z\uffff").ahead == 8


def test_filters_are_the_brokers(client: Client) -> None:
    page = page_of_ids(client, ListFilter(pattern="id-[12]"))
    assert ([row.transactional_id for row in page.rows], page.total) == (["id-1", "id-2"], 2)
    assert page_of_ids(client, ListFilter(("Ongoing",))).rows == []
    for wrong in (ListFilter(("Nothing",)), ListFilter(pattern="(")):
        with pytest.raises(BrokerRefused):
            page_of_ids(client, wrong)
        with pytest.raises(BrokerRefused):
            list_transactions(client, wrong)


def test_a_coordinator_that_cannot_tell_is_named(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.admin.transactions.id_pages.too_old", program_of(lambda *_: "it is too old"))
    page = page_of_ids(client)
    assert (page.rows, page.total, [item.reason for item in page.unanswered]) == ([], 0, ["it is too old"])
