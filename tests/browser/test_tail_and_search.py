"""A live tail in a browser: outcomes change where they stand, a pause loses nothing up to its bound and tells the rest;
a search that is cancelled; a record that is produced."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.testing import Broker
from tests.interop.admin.lab import ByHand, at
from tests.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.watch import Tab

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.slow]
WAITING = 1000
"""Records that a paused tail keeps (static/tail.js)."""


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as made:
        yield made


def make(client: Client, topic: str) -> None:
    create_topic(client, NewTopic(topic, partitions=1, replication_factor=1))
    client.topic(topic)


def write(client: Client, topic: str, count: int) -> None:
    client.produce(at(topic), build_batch([Record(number, 1, None, b"v") for number in range(count)]))


def begun(page: Page, topic: str) -> None:
    page.goto(f"/messages/tail?topic={topic}")
    page.get_by_text("waiting for records in 1 partitions").wait_for()


def test_an_outcome_changes_where_it_stands(tab: Tab, client: Client) -> None:
    make(client, "tail-outcomes")
    begun(tab.page, "tail-outcomes")
    hand = ByHand(client, "tail-outcomes-1")
    hand.begin(at("tail-outcomes"))
    state = tab.page.locator("#state-0-0")
    state.wait_for()
    assert state.text_content() == "undecided"
    hand.end()
    tab.page.locator("#state-0-0.committed").wait_for()
    assert state.text_content() == "committed"


def test_a_pause_loses_nothing(tab: Tab, client: Client) -> None:
    make(client, "tail-paused")
    begun(tab.page, "tail-paused")
    rows, waiting = tab.page.locator("#hits tr"), tab.page.locator("#waiting")
    tab.page.get_by_role("button", name="Pause").click()
    hand = ByHand(client, "tail-paused-1")
    hand.begin(at("tail-paused"))
    write(client, "tail-paused", 5)
    waiting.get_by_text("6 waiting", exact=True).wait_for()
    assert rows.count() == 0
    hand.end(commit=False)
    write(client, "tail-paused", 1)
    waiting.get_by_text("7 waiting", exact=True).wait_for()
    tab.page.get_by_role("button", name="Resume").click()
    tab.page.locator("#state-0-0.aborted").wait_for()
    assert rows.count() == 7
    assert waiting.text_content() == ""
    write(client, "tail-paused", 1)
    wait_until(lambda: rows.count() == 8, "the tail going on")


def test_what_a_pause_cannot_keep_is_told(tab: Tab, client: Client) -> None:
    make(client, "tail-flood")
    begun(tab.page, "tail-flood")
    tab.page.get_by_role("button", name="Pause").click()
    waiting = tab.page.locator("#waiting")
    for step in range(11):
        write(client, "tail-flood", 100)
        seen = min(WAITING, 100 * (step + 1))
        waiting.get_by_text(re.compile(f"^{seen} wait")).wait_for()
    waiting.get_by_text("1000 waiting, 100 later ones skipped").wait_for()
    tab.page.get_by_role("button", name="Resume").click()
    first = tab.page.locator("#hits tr").first
    assert first.text_content() == "100 records were skipped during the pause, from 0: 1000 on"
    assert tab.page.locator("#hits tr").count() == WAITING


def test_a_search_tells_outcomes_and_that_it_is_over(tab: Tab, client: Client) -> None:
    make(client, "searched")
    ByHand(client, "searched-1").begin(at("searched"))
    tab.page.goto("/messages/search?topic=searched&q=v")
    tab.page.get_by_text("Search complete.").wait_for()
    tab.page.locator("#state-0-0.open").wait_for()
    tab.page.get_by_role("button", name="ended").wait_for()
    with tab.page.expect_download() as download:
        tab.page.get_by_role("link", name="JSON lines").click()
    assert download.value.suggested_filename == "searched-0-from-0.jsonl"
    assert '"state":"open"' in download.value.path().read_text("utf-8")


def test_a_record_is_produced_and_looked_at(tab: Tab, client: Client) -> None:
    make(client, "produced-here")
    page = tab.page
    page.goto("/messages?topic=produced-here")
    page.get_by_role("link", name="produce a record").click()
    page.get_by_label("value", exact=True).fill("one\ntwo")
    page.get_by_role("button", name="Preview").click()
    page.get_by_text("not written yet").wait_for()
    assert tab.axe() == []
    page.locator("[name=typed]").fill("produced-here")
    page.get_by_role("button", name="Write the record").click()
    page.get_by_role("link", name="Show the record").click()
    page.get_by_role("heading", name="Value").wait_for()
    page.wait_for_load_state("load")  # lines are lines once the styles are there
    assert "one\ntwo" in page.locator("main").inner_text()
