"""Topics in a browser: found while typing; made, altered after a look at the difference, extended, deleted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from oncelog.client.blocking import Client
from oncelog.client.blocking.producer import Producer
from oncelog.testing import Broker
from tests.browser import scene
from tests.browser.watch import Tab

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.slow]


def confirm(page: Page, button: str, name: str) -> None:
    """Type a name into the form of a button, and press it."""
    form = page.locator("form.change").filter(has=page.get_by_role("button", name=button))
    form.get_by_label("To confirm").fill(name)
    form.get_by_role("button", name=button).click()


def test_topics_are_found_while_their_name_is_typed(tab: Tab) -> None:
    page = tab.page
    page.goto("/overview")
    page.get_by_role("link", name="Topics", exact=True).click()
    expect(page.get_by_role("cell", name=scene.ORDERS)).to_be_visible()
    page.wait_for_load_state()
    page.keyboard.press("/")
    page.keyboard.type("PAYments")
    expect(page.get_by_role("cell", name=scene.ORDERS)).to_have_count(0)
    expect(page.get_by_role("cell", name=scene.PAYMENTS)).to_be_visible()
    expect(page).to_have_url(re.compile(r"/topics\?filter=PAYments$"))
    assert page.get_by_label("name contains").evaluate("one => one === document.activeElement"), "typing goes on"
    expect(page.get_by_role("link", name="this page as JSON")).to_have_attribute("href", "/topics.json?filter=PAYments")
    page.get_by_role("link", name=scene.PAYMENTS).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Topic {scene.PAYMENTS}")
    page.go_back()
    expect(page.get_by_label("name contains")).to_have_value("PAYments")
    expect(page.get_by_role("cell", name=scene.ORDERS)).to_have_count(0)
    page.get_by_label("include internal topics").check()
    page.get_by_label("name contains").fill("__")
    expect(page.get_by_role("cell", name="__consumer_offsets")).to_be_visible()


def test_a_topic_from_its_making_to_its_end(tab: Tab, broker: Broker, audit_log: Path) -> None:
    page = tab.page
    page.goto("/topics")
    page.get_by_role("link", name="create a topic").click()
    page.get_by_label("name").fill("browser.made")
    page.get_by_label("partitions").fill("2")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("status")).to_contain_text("Created.")
    with Client(broker.bootstrap_servers) as client, Producer(client) as producer:
        for number in range(10):
            producer.send("browser.made", b"%d" % number, partition=0)

    page.goto("/topics/one?name=browser.made")
    page.get_by_role("link", name="change").click()
    page.get_by_label("key", exact=True).fill("retention.ms")
    page.get_by_label("value").fill("never")
    page.get_by_role("button", name="Preview the change").click()
    expect(page.get_by_role("alert").first).to_contain_text("retention.ms")
    page.go_back()
    page.get_by_label("key", exact=True).fill("retention.ms")
    page.get_by_label("value").fill("3600000")
    page.get_by_role("button", name="Preview the change").click()
    expect(page.get_by_role("row").nth(1)).to_have_text(re.compile(r"retention.ms\s*604800000 \(default\)\s*3600000"))
    confirm(page, "Set", "browser.mode")
    expect(page.get_by_role("alert").first).to_contain_text("Nothing was done")
    page.go_back()
    confirm(page, "Set", "browser.made")
    expect(page.get_by_role("status")).to_contain_text("retention.ms: 604800000 (default) → 3600000")

    page.goto("/topics/change?name=browser.made")
    page.get_by_label("total partitions").fill("3")
    confirm(page, "Add partitions", "browser.made")
    expect(page.get_by_role("status")).to_contain_text("It now has 3 partitions.")
    page.goto("/topics/change?name=browser.made")
    page.get_by_label("partition", exact=True).fill("0")
    page.get_by_label("before offset").fill("4")
    confirm(page, "Delete records", "browser.made")
    expect(page.get_by_role("status")).to_contain_text("Partition 0 now begins at offset 4.")
    page.goto("/topics/one?name=browser.made")
    expect(page.get_by_role("row", name="0 4 10 10")).to_be_visible()
    expect(page.get_by_role("row", name="retention.ms 3600000")).to_be_visible()

    page.goto("/topics/change?name=browser.made")
    confirm(page, "Delete topic", "browser.made")
    expect(page.get_by_role("status")).to_contain_text("Deleted.")
    answer = page.goto("/topics/one?name=browser.made")
    assert answer is not None
    assert answer.status == 404
    decodeds = [json.loads(line) for line in audit_log.read_text("utf-8").splitlines()]
    done = [
        decoded["action"]
        for decoded in decodeds
        if decoded["outcome"] == "done" and decoded.get("topic") == "browser.made"
    ]
    assert done == ["create-topic", "alter-config", "add-partitions", "delete-records", "delete-topic"]


def test_an_empty_name_is_asked_for_before_anything_is_sent(tab: Tab) -> None:
    page = tab.page
    page.goto(f"/topics/change?name={scene.EMPTY}")
    page.get_by_role("button", name="Delete topic").click()
    assert page.url.endswith(f"/topics/change?name={scene.EMPTY}"), "the browser asks for the name first"
    assert page.get_by_label("To confirm").last.evaluate("one => one.matches(':invalid')")
