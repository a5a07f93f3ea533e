"""Several clusters in one console: the start page, the switch, and pages, forms and streams below a cluster's name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncelog.console.settings import NamedCluster
from oncelog.testing import Broker
from tests.browser import scene
from tests.browser.served import Served

if TYPE_CHECKING:
    from tests.browser.watch import Open

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.slow]
LIVE = "production-frankfurt"
OVERLAPPING = """() => {
  const parts = [...document.querySelectorAll("header .home, header summary, header .tag, header .menu")];
  const boxes = parts.map((part) => [part.textContent, part.getBoundingClientRect()]);
  return boxes.flatMap(([name, one], at) => boxes.slice(at + 1)
    .filter(([, other]) => one.left < other.right && other.left < one.right)
    .filter(([, other]) => one.top < other.bottom && other.top < one.bottom)
    .map(([other]) => `${name} and ${other}`));
}"""
"""Pairs of parts of the header that lie on each other."""


@pytest.fixture
def several(broker: Broker, tmp_path: Path) -> Iterator[Served]:
    """A console of a cluster with the scene and of one that is down."""
    clusters = (NamedCluster(LIVE, broker.bootstrap_servers), NamedCluster("down", "127.0.0.1:9"))
    with Served("", audit_log=tmp_path / "audit", clusters=clusters) as console:
        yield console


def test_clusters_are_listed_switched_and_used(several: Served, tabs: Open) -> None:
    from playwright.sync_api import expect

    tab = tabs(several.origin)
    page = tab.page
    page.goto("/")
    expect(page.get_by_role("row").filter(has_text="127.0.0.1:9")).to_contain_text("no answer")
    assert tab.axe() == []
    page.get_by_role("cell").get_by_role("link", name=LIVE).click()
    expect(page).to_have_url(f"{several.origin}/c/{LIVE}/overview")
    page.goto(f"/c/{LIVE}/topics")
    page.get_by_label("name contains").fill(scene.ORDERS)
    expect(page).to_have_url(f"{several.origin}/c/{LIVE}/topics?filter={scene.ORDERS}")
    page.get_by_role("link", name=scene.ORDERS, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(scene.ORDERS)
    page.goto(f"/c/{LIVE}/messages/search?topic={scene.ORDERS}&q=c-16")
    expect(page.get_by_text("Search complete")).to_be_visible()
    page.goto(f"/c/{LIVE}/groups")
    page.set_viewport_size({"width": 375, "height": 667})
    assert page.evaluate(OVERLAPPING) == []
    assert tab.overflow() == []
    page.locator("details.switch summary").click()
    assert tab.axe() == []
    page.get_by_role("navigation", name="Clusters").get_by_role("link", name="down").click()
    expect(page).to_have_url(f"{several.origin}/c/down/groups")
    expect(page.get_by_role("alert").first).to_contain_text("127.0.0.1:9")
