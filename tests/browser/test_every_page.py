"""Every page in a browser: no violation that axe knows, light and dark, on a phone, on paper, and its JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from oncelog.console.pages import PAGES
from tests.browser import scene
from tests.browser.served import Served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.browser.watch import Tab

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.slow]

STATES = (
    "/overview",
    "/transactions",
    "/transactions?verdict=live",
    f"/transactions/one?topic={scene.ORDERS}&partition=0&start_offset=4",
    f"/transactions/one?topic={scene.PAYMENTS}&partition=0&start_offset=0",
    "/transactions/ids",
    f"/transactions/ids?id={scene.LIVE}",
    "/transactions/bulk?min_age_ms=0",
    "/explain",
    f"/explain?kind=group&name={scene.BILLING}",
    f"/explain?kind=partition&name={scene.ORDERS}&partition=0",
    "/groups",
    f"/groups/one?name={scene.BILLING}",
    "/groups/one?name=dashboards",
    f"/groups/one?name={scene.WORKERS}",
    f"/groups/reset?name={scene.ANALYTICS}&to=earliest",
    f"/groups/delete?name={scene.ANALYTICS}",
    f"/groups/reset?name={scene.WORKERS}&to=earliest",
    f"/groups/delete?name={scene.WORKERS}&topic={scene.REFUNDS}",
    f"/explain?kind=group&name={scene.WORKERS}",
    "/topics",
    "/topics?filter=nothing-has-this-in-its-name",
    f"/topics/one?name={scene.ORDERS}&all_configs=1",
    "/topics/change",
    f"/topics/change?name={scene.ORDERS}&key=retention.ms&value=1000000",
    "/messages",
    f"/messages?topic={scene.ORDERS}&partition=0&from=first",
    f"/messages?topic={scene.ORDERS}&partition=1",
    f"/messages?topic={scene.EMPTY}",
    f"/messages/one?topic={scene.ORDERS}&partition=1&offset=7",
    f"/messages/search?topic={scene.ORDERS}&q=c-16",
    f"/messages/tail?topic={scene.ORDERS}",
    f"/messages/produce?topic={scene.ORDERS}",
    "/messages/schema?id=2",
    "/messages/schema?id=7",
    "/producers",
    f"/producers?topic={scene.ORDERS}",
    "/brokers",
    "/brokers/one?id=1&all_configs=1",
    "/security",
    "/security/acl?principal=User:ann&resource=orders",
    "/security/users",
    "/security/user?user=carol",
    "/security/quotas",
    "/security/quota?user=dan&key=producer_byte_rate&value=2048",
    "/mirrors",
    "/audit",
    "/audit/report?key=report.json",
    "/audit/run?key=nothing",
    "/metrics",
    "/topics/one?name=nothing",
    "/topics?page=x",
    "/nothing",
)
"""Addresses that between them show every template, with rows and without."""

NOT_FOR_PAPER = """() => {
  const seen = (one) => one.checkVisibility();
  const clicked = "button, input:not([type=hidden]), select, header nav, footer";
  const cut = (one) => one.scrollWidth > one.clientWidth + 1;
  return [
    ...[...document.querySelectorAll(clicked)].filter(seen).map((one) => `to click: ${one.outerHTML}`),
    ...[...document.querySelectorAll("table")].filter(cut).map((one) => `cut: ${one.outerHTML.slice(0, 200)}`),
    ...(document.querySelector("h1").checkVisibility() ? [] : ["no heading"]),
  ];
}"""


def test_every_page_is_looked_at() -> None:
    assert {page.path for page in PAGES} <= {state.partition("?")[0] for state in STATES}


@pytest.fixture(scope="module")
def reader(browser: Browser, console: Served) -> Iterator[Tab]:
    """One tab for all of them."""
    from tests.browser.watch import Tab

    tab = Tab(browser, console.origin)
    yield tab
    tab.close()


@pytest.mark.parametrize("state", STATES)
def test_a_page_is_fit_for_readers_phones_paper_and_programs(reader: Tab, state: str) -> None:
    page = reader.page
    page.set_viewport_size({"width": 1280, "height": 800})
    page.emulate_media(media="screen", color_scheme="light")
    answer = page.goto(state)
    assert answer is not None
    if "q=" in state:
        page.get_by_text("Search complete").wait_for()
    wrong = [f"axe, light: {line}" for line in reader.axe()]
    page.emulate_media(color_scheme="dark")
    wrong += [f"axe, dark: {line}" for line in reader.axe(only_colours=True)]
    page.set_viewport_size({"width": 375, "height": 667})
    wrong += [f"scrolls sideways on a phone: {line}" for line in reader.overflow()]
    page.set_viewport_size({"width": 700, "height": 1000})
    page.emulate_media(media="print", color_scheme="light")
    wrong += [f"on paper: {line}" for line in page.evaluate(NOT_FOR_PAPER)]
    if answer.status == 200:
        wrong += _json_of(page, state)
    reader.check()
    assert not wrong, "\n".join(wrong)


def test_the_page_of_a_schema_leads_to_the_schemas_that_it_uses(reader: Tab) -> None:
    from playwright.sync_api import expect

    page = reader.page
    page.set_viewport_size({"width": 1280, "height": 800})
    page.emulate_media(media="screen")
    answer = page.goto("/messages/schema?id=2")
    assert answer is not None
    assert answer.status == 200
    for text in ("orders-value", "returns-value", "item"):
        expect(page.get_by_text(text, exact=True).first).to_be_visible()
    assert json.loads(page.locator("pre.bytes").inner_text())["name"] == "Order"


def _json_of(page: Page, state: str) -> list[str]:
    """Problems of a page's JSON."""
    address = page.locator("#foot a").get_attribute("href") or ""
    path, _, parameters = state.partition("?")
    if address.partition("?")[::2] != (f"{path}.json", parameters):
        return [f"its JSON is said to be at {address}"]
    value = page.request.get(address)
    kind = value.headers["content-type"]
    return [] if (value.status, kind) == (200, "application/json") else [f"its JSON: {value.status} {kind}"]
