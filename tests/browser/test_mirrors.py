"""Mirrors in a browser: one that runs between two clusters, from its first records to what it leaves when it ends."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, expect

from oncelog.mirror.engine import Engine
from oncelog.testing import Broker
from tests.browser.served import Served
from tests.browser.watch import Open
from tests.interop.mirror.conftest import Side, settings_of
from tests.waiting import HANG_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.slow]
TOPIC = "browser.mirrored"


@contextmanager
def mirroring(source: Side, target: Side) -> Iterator[None]:
    """A mirror of the topic that runs meanwhile, and ends as it does at SIGTERM."""
    settings = settings_of(source, target, "factory-7", topics=re.compile(re.escape(TOPIC)))
    loop, made = asyncio.new_event_loop(), threading.Event()
    engines: list[Engine] = []

    async def run() -> None:
        engines.append(Engine(settings))
        made.set()
        await engines[0].run()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), name="mirror", daemon=True)
    thread.start()
    assert made.wait(HANG_S)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(engines[0].stop)
        thread.join(HANG_S)
        loop.close()


def cells(page: Page, table: int) -> list[str]:
    """The texts of the first row of a table, without the moment it was written at."""
    return page.locator("table").nth(table).locator("tbody tr").first.locator("td").all_inner_texts()[:-1]


def test_what_a_mirror_has_copied_and_what_it_is_behind(tabs: Open, broker: Broker) -> None:
    with Broker() as other, Served(other.bootstrap_servers) as console:
        source, target = Side(broker), Side(other)
        source.create(TOPIC)
        source.send(TOPIC, "one", "two", "three")
        source.commit("mirrored-desk", TOPIC, 2)
        tab = tabs(console.origin)
        page = tab.page
        page.goto("/mirrors")
        expect(page.get_by_text("No mirror copies into this cluster.")).to_be_visible()
        with mirroring(source, target):
            wait_until(
                lambda: page.goto("/mirrors") and page.get_by_role("link", name="factory-7").count(),
                "the mirror",
                poll_s=0.2,
            )
            wait_until(
                lambda: page.reload() and cells(page, 1)[3:] == ["3", "0", "3", "0", "1"], "its group", poll_s=0.2
            )
            assert cells(page, 0) == ["factory-7", "1", "3", "0"]
            source.send(TOPIC, "four")
            wait_until(lambda: page.reload() and cells(page, 1)[3:6] == ["4", "0", "4"], "the next record", poll_s=0.2)
        page.get_by_role("link", name="factory-7", exact=True).click()
        expect(page).to_have_url(re.compile(r"\?source=factory-7$"))
        assert cells(page, 1)[:3] == ["factory-7", f"{TOPIC}-0", f"factory-7.{TOPIC}"]
        assert tab.axe() == []
        page.set_viewport_size({"width": 375, "height": 667})
        assert tab.overflow() == []
        page.get_by_role("link", name=f"factory-7.{TOPIC}").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(f"Topic factory-7.{TOPIC}")
        source.client.close()
        target.client.close()
