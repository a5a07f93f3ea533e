"""The broker dies or freezes, the console is started again: the page says so, and goes on by itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client
from oncelog.client.blocking.producer import Producer
from oncelog.testing import Broker
from oncelog.web.logins import Token
from tests.browser.served import Served
from tests.browser.watch import Open
from tests.interop.admin.lab import ByHand, at
from tests.peers.oncelog_serve import OncelogServe
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.slow]
TOPIC = "readings"
QUICK = {
    "default.api.timeout.ms": "1000",
    "request.timeout.ms": "1000",
    "bootstrap.timeout.ms": "300",
    "socket.connection.setup.timeout.ms": "1000",
}


@pytest.fixture(scope="module")
def mortal() -> Iterator[Broker]:
    """A broker that tests here may kill."""
    with Broker() as running:
        with Client(running.bootstrap_servers) as client:
            create_topic(client, NewTopic(TOPIC, partitions=1, replication_factor=1))
            client.topic(TOPIC)
            with Producer(client) as producer:
                for number in range(300):
                    producer.send(TOPIC, b"reading %d" % number, partition=0)
        yield running


@pytest.fixture
def served(mortal: Broker, tmp_path: Path) -> Iterator[Served]:
    """A console of it that gives up soon, and may be started again."""
    with Served(mortal.bootstrap_servers, audit_log=tmp_path / "audit", client=QUICK) as running:
        yield running


def tab_at(tabs: Open, served: Served) -> Page:
    """A tab at a console that is going to be stopped."""
    tab = tabs(served.origin)
    tab.has_outage = True
    return tab.page


def later(page: Page) -> None:
    """Let the time of a page pass until it asks again."""
    page.clock.fast_forward(5001)


def later_until(page: Page, condition: Callable[[], bool]) -> None:
    """Let it pass until something holds. Its answers are not waited for: a page that has just changed may ask no more,
    or not have begun to count yet."""
    wait_until(lambda: condition() or later(page), page.content, poll_s=0.05)


def test_the_broker_dies_and_the_page_says_so_and_goes_on(tabs: Open, served: Served, mortal: Broker) -> None:
    page = tabs(served.origin).page
    page.clock.install()
    page.goto("/overview")
    expect(page.get_by_text("1 of 1")).to_be_visible()
    mortal.kill()
    try:
        silent = page.get_by_text("The cluster does not answer")
        later_until(page, silent.is_visible)
        expect(page.get_by_text("This is how it was")).to_be_visible()
        expect(page.get_by_text("1 of 1")).to_be_visible()
    finally:
        mortal.start()
    later_until(page, silent.is_hidden)
    expect(page.get_by_text("1 of 1")).to_be_visible()
    expect(page).to_have_title("Overview · oncelog")


def test_a_page_keeps_its_last_picture_with_its_age_also_after_a_reload(
    tabs: Open, served: Served, mortal: Broker
) -> None:
    page = tabs(served.origin).page
    page.goto("/transactions")
    expect(page.get_by_role("heading", level=1)).to_have_text("Open transactions")
    mortal.kill()
    try:
        page.reload()
        expect(page.locator("h1 .age")).to_contain_text("old")
        expect(page.get_by_role("alert").first).to_contain_text("This is how it was")
        expect(page.get_by_text("No transaction is open in the")).to_be_visible()
    finally:
        mortal.start()
    expect(page.locator("h1 .age")).to_be_hidden()
    expect(page.get_by_role("heading", level=1)).to_have_text("Open transactions")


def test_a_filter_meets_a_dead_broker_and_is_applied_when_it_is_back(
    tabs: Open, served: Served, mortal: Broker
) -> None:
    page = tabs(served.origin).page
    page.goto("/topics")
    expect(page.get_by_role("cell", name=TOPIC)).to_be_visible()
    mortal.kill()
    try:
        page.clock.install()
        while not page.locator("#lost").is_visible():  # The list of topics of a moment ago is good for two seconds.
            with page.expect_response("**/topics?*"):
                page.get_by_label("name contains").fill("" if page.get_by_label("name contains").input_value() else "r")
                later(page)
        expect(page.locator("#lost")).to_contain_text("shows old data")
        expect(page.get_by_role("cell", name=TOPIC)).to_be_visible()
        page.get_by_label("name contains").fill("nothing")
    finally:
        mortal.start()
    later_until(page, page.locator("#lost").is_hidden)
    expect(page.get_by_text("No topic name contains this.")).to_be_visible()


def test_a_frozen_broker_holds_up_no_page_that_does_not_need_it(tabs: Open, tmp_path: Path) -> None:
    with (
        OncelogServe(tmp_path / "frozen", forked=True) as broker,
        Served(broker.bootstrap_servers, client=QUICK, patience_s=0.5) as served,
    ):
        page = tabs(served.origin).page
        page.goto("/overview")
        expect(page.get_by_text("1 of 1")).to_be_visible()
        os.kill(broker.process.pid, signal.SIGSTOP)
        try:
            page.goto("/topics")
            expect(page.get_by_role("alert").first).to_contain_text("answer from the cluster in 0.5 s")
            page.clock.install()
            assert page.request.get("/health.json").ok
        finally:
            os.kill(broker.process.pid, signal.SIGCONT)
        later_until(page, page.get_by_role("heading", name="Topics", exact=True).is_visible)


def test_the_console_is_started_again_and_the_page_goes_on(tabs: Open, served: Served) -> None:
    page = tab_at(tabs, served)
    page.clock.install()
    page.goto("/overview")
    expect(page.get_by_text("1 of 1")).to_be_visible()
    served.stop()
    later(page)
    expect(page.locator("#lost")).to_contain_text("The console does not answer.")
    expect(page.get_by_text("1 of 1")).to_be_visible()
    served.start()
    later_until(page, page.locator("#lost").is_hidden)
    expect(page.get_by_text("1 of 1")).to_be_visible()


def test_a_form_of_before_the_start_is_refused_with_the_way_back_to_it(
    tabs: Open, served: Served, mortal: Broker
) -> None:
    with Client(mortal.bootstrap_servers) as client:
        name = f"started-again-{served.port}"
        ByHand(client, name, timeout_ms=900_000).begin(at(TOPIC))
    page = tabs(served.origin).page
    page.goto(f"/transactions/ids?id={name}")
    served.stop()
    served.start()
    page.get_by_label("To confirm").fill(name)
    page.get_by_role("button", name="Force-terminate").click()
    expect(page.get_by_role("alert").first).to_contain_text("an earlier start of the console")
    page.get_by_role("link", name="Reload the form").click()
    page.get_by_label("To confirm").fill(name)
    page.get_by_role("button", name="Force-terminate").click()
    expect(page.get_by_role("status")).to_contain_text("Ongoing →")


def test_who_has_to_log_in_again_comes_back_to_where_he_was(tabs: Open, mortal: Broker) -> None:
    secret = "a token of some length"
    with Served(mortal.bootstrap_servers, client=QUICK, login=Token(secret.encode())) as served:
        page = tabs(served.origin).page
        page.goto(f"/topics?filter={TOPIC}")
        page.get_by_label("Token").fill("another")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert").first).to_have_text("Wrong token.")
        page.get_by_label("Token").fill(secret)
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"{served.origin}/topics?filter={TOPIC}")
        page.clock.install()
        page.goto("/overview")
        expect(page.get_by_text("1 of 1")).to_be_visible()
        served.stop()
        served.start()
        later(page)
        page.get_by_label("Token").fill(secret)
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"{served.origin}/overview")
        expect(page.get_by_text("1 of 1")).to_be_visible()


def test_a_search_begins_anew_when_its_console_is_back(tabs: Open, served: Served) -> None:
    page = tab_at(tabs, served)
    page.route("**/messages/search-events*", lambda route: route.abort(), times=1)
    page.goto(f"/messages/search?topic={TOPIC}&q=reading+2")
    expect(page.locator("#lost")).to_contain_text("The search will restart.")
    expect(page.get_by_text("Search complete")).to_be_visible()
    expect(page.locator("#hits tr")).to_have_count(111)
    expect(page.locator("#lost")).to_be_hidden()
    expect(page.get_by_role("button", name="ended")).to_be_disabled()
