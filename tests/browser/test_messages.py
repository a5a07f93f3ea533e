"""Messages in a browser: states, formats, the last stable offset, searches with their progress, live tails."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client
from oncelog.client.blocking.producer import Producer
from oncelog.testing import Broker
from tests.browser import scene
from tests.browser.served import Served
from tests.browser.watch import Open, Tab

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.slow]


def write(broker: Broker, topic: str, values: list[bytes]) -> None:
    """Records of a topic of one partition, which is made if it is not there."""
    with Client(broker.bootstrap_servers) as client:
        if topic not in client.metadata(None):
            create_topic(client, NewTopic(topic, partitions=1, replication_factor=1))
            client.topic(topic)
        with Producer(client) as producer:
            for value in values:
                producer.send(topic, value, partition=0)


def test_each_record_has_the_state_of_its_transaction(tab: Tab) -> None:
    page = tab.page
    page.goto(f"/messages?topic={scene.ORDERS}&partition=0&from=first")
    states = page.locator("tbody tr").locator("td:nth-child(2) .tag").all_text_contents()
    assert states[:5] == ["committed", "marker", "aborted", "marker", "open"]
    expect(page.get_by_text("read_committed consumers read up to 4")).to_be_visible()
    page.get_by_role("link", name="last stable offset").click()
    expect(page).to_have_url(re.compile("from=stable"))
    expect(page.get_by_role("row").nth(1)).to_contain_text("open")
    page.get_by_role("link", name="why").click()
    expect(page.get_by_text("stuck: held-by-transaction")).to_be_visible()


def test_values_are_shown_in_the_format_that_is_chosen(tab: Tab, broker: Broker) -> None:
    write(broker, "browser.formats", [b"\x00\x00\x01\x00", b'{"a": [1, 2]}', "grüße".encode()])
    page = tab.page
    shown = {}
    page.goto("/messages?topic=browser.formats")
    page.get_by_text("more filters").click()
    for form in ("hex", "integer", "text", "json"):
        page.get_by_label("value as").select_option(form)
        page.get_by_role("button", name="Show").click()
        expect(page.get_by_label("value as")).to_have_value(form)
        expect(page).to_have_url(re.compile(f"value_format={form}"))
        shown[form] = [item.inner_text() for item in page.locator("summary .bytes").all()][::-1]
    assert shown["hex"][0] == "00 00 01 00"
    assert shown["integer"][0] == "256"
    assert shown["text"][1:] == ['{"a": [1, 2]}', "grüße"]
    page.get_by_label("value as").select_option("auto")
    page.get_by_role("button", name="Show").click()
    page.locator("summary").filter(has_text='"a"').click()
    assert page.locator(".record .json-number").all_inner_texts() == ["1", "2"]
    assert "".join(shown["json"][1].split()) == '{"a":[1,2]}'


def test_pages_of_records_lead_to_both_ends(tab: Tab) -> None:
    page = tab.page
    page.goto(f"/messages?topic={scene.ORDERS}&partition=1")
    first = page.locator("tbody tr td:first-child").first
    expect(first).to_have_text(str(scene.BULK - 1))
    page.get_by_role("link", name="older →").click()
    expect(first).to_have_text(str(scene.BULK - 51))
    page.get_by_role("link", name="← newer").click()
    expect(first).to_have_text(str(scene.BULK - 50))
    page.get_by_role("link", name="first", exact=True).click()
    expect(first).to_have_text("0")
    page.get_by_label("from").first.fill("2001-01-01T00:00")
    page.get_by_label("order").select_option("oldest first")
    page.get_by_role("button", name="Show").click()
    expect(first).to_have_text("0")


def test_all_partitions_are_filtered_by_what_is_typed(tab: Tab) -> None:
    page = tab.page
    page.goto(f"/messages?topic={scene.ORDERS}")
    page.get_by_text("more filters").click()
    page.get_by_label("JSON field").fill("customer=C-16")
    page.get_by_label("key has").fill("ORDER-3")
    page.get_by_label("from").first.fill("-1h")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text(re.compile("^from 20.* UTC"))).to_be_visible()
    assert "value=" not in page.url
    keys = page.locator("tbody td:nth-child(3) .bytes")
    expect(keys.first).to_be_visible()
    orders = [n for n in range(2 * scene.BULK) if n % 17 == 16 and str(n).startswith("3")]
    assert sorted(keys.all_inner_texts()) == [f"order-{n}" for n in sorted(orders, key=str)]
    page.get_by_label("match case").check()
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("None of the records that were read matches")).to_be_visible()


def test_a_large_value_is_cut_and_loaded_when_asked(tab: Tab, broker: Broker) -> None:
    write(broker, "browser.large", [b"x" * 50_000 + b"the end"])
    page = tab.page
    page.goto("/messages?topic=browser.large")
    expect(page.get_by_text("the end")).to_have_count(0)
    expect(page.get_by_text("of 48.8 KiB").first).to_be_visible()
    page.locator("summary").filter(has_text="xxx").click()
    page.get_by_role("link", name="load all").click()
    expect(page.locator(".part .bytes").last).to_have_text(re.compile("the end$"))
    expect(page).to_have_url(re.compile("topic=browser.large$"))


def test_a_search_tells_how_far_it_is_and_when_it_has_read_everything(tab: Tab) -> None:
    page = tab.page
    page.goto("/messages/search")
    page.get_by_label("topic").fill(scene.ORDERS)
    page.get_by_role("textbox", name="search text").fill("order-7")
    page.locator("select[name=place]").select_option("key")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("status")).to_contain_text("Search complete.")
    expect(page.get_by_role("progressbar")).to_have_js_property("position", 1)
    expect(page.locator("#hits tr")).to_have_count(11)
    page.get_by_role("textbox", name="search text").fill("nobody wrote this")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("status")).to_contain_text("Nothing found in all records.")
    expect(page.locator("#hits tr")).to_have_count(0)


def test_a_search_that_is_stopped_ends_at_the_console_too(tabs: Open, broker: Broker) -> None:
    write(broker, "browser.searched", [b"needle %d" % number for number in range(20)])
    with Served(broker.bootstrap_servers) as served:
        tab = tabs(served.origin)
        tab.has_outage = True  # It is open when this console ends.
        page = tab.page
        for _ in range(8):  # More than may run at once: those that were stopped are over.
            page.goto("/messages/tail?topic=browser.searched")
            expect(page.get_by_text("waiting for records")).to_be_visible()
            with page.expect_event("requestfailed", lambda request: "tail-events" in request.url):
                page.get_by_role("button", name="Stop").click()
            expect(page.get_by_role("button", name="stopped")).to_be_disabled()


def test_a_tail_shows_what_is_written_from_now_on(tab: Tab, broker: Broker) -> None:
    write(broker, "browser.tail", [b"before"])
    page = tab.page
    page.goto("/messages/tail?topic=browser.tail")
    expect(page.get_by_text("waiting for records in 1 partitions")).to_be_visible()
    write(broker, "browser.tail", [b"<b>first</b>", b"second"])
    expect(page.locator("#hits tr")).to_have_count(2)
    assert page.locator("#hits .bytes").all_inner_texts() == ["second", "<b>first</b>"]
    page.get_by_role("link", name="0: 2").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("offset 2")
