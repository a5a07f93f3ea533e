"""The console by keys alone: the way to every page, what has the focus and shows it, and addresses that lead back."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from oncelog.console.pages import PAGES
from tests.browser import scene
from tests.browser.watch import Tab

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.slow]
FOCUS_IS_SEEN = """() => {
  const one = document.activeElement, style = getComputedStyle(one);
  const box = one.getBoundingClientRect();
  return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 && box.width > 1;
}"""


def test_g_and_the_key_of_a_page_open_it(tab: Tab) -> None:
    page = tab.page
    page.goto("/overview")
    expect(page.get_by_role("navigation", name="Pages of the console")).to_be_visible()
    pages = [page for page in PAGES if page.path.count("/") == 1]
    assert len({linked.key for linked in pages if linked.key}) == len(pages)
    for linked in pages:
        page.keyboard.press("g")
        with page.expect_navigation():
            page.keyboard.press(linked.key)
        expect(page.locator("header [aria-current=page] span")).to_have_text(linked.title)


def test_j_and_k_go_along_rows_and_the_help_lists_the_keys(tab: Tab) -> None:
    page = tab.page
    page.request.get("/groups.json")  # with a diagnosis the page does not renew itself at once
    page.goto("/groups")
    first = page.locator("tbody tr a, .problems li a").first
    expect(first).to_be_visible()
    group = first.inner_text()
    page.keyboard.press("j")
    expect(page.locator(":focus")).to_have_text(group)
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.locator(":focus")).to_have_text(group)
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Shortcuts")
    expect(keys).to_contain_text("next and previous row")
    page.keyboard.press("Escape")
    expect(keys).to_be_hidden()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Group {group}")


def test_tab_goes_through_a_page_in_its_order_and_the_focus_is_seen(tab: Tab) -> None:
    page = tab.page
    page.goto(f"/groups/one?name={scene.BILLING}")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    expect(page.get_by_role("link", name="Skip to content")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("#content")).to_be_focused()
    seen = []
    for _ in range(4):
        page.keyboard.press("Tab")
        assert page.evaluate(FOCUS_IS_SEEN)
        seen.append(page.evaluate("document.activeElement.textContent"))
    assert seen == ["1", "Explain", "Reset offsets", "Delete…"]


def test_a_renewal_leaves_focus_and_selection_alone(tab: Tab) -> None:
    page = tab.page
    page.goto("/overview")
    link = page.get_by_role("link", name=scene.BILLING).first
    link.focus()
    page.evaluate("document.querySelector('h1').textContent = 'as it was'")
    page.evaluate("htmx.trigger('#content', 'renew')")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    expect(link).to_be_focused()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('h1'))")
    page.evaluate("htmx.trigger('#content', 'renew')")
    expect(page.locator("#renewal")).to_have_text("paused while text is selected")
    page.evaluate("getSelection().removeAllRanges()")
    with page.expect_response("**/overview"):
        page.evaluate("htmx.trigger('#content', 'renew')")
    expect(page.locator("#renewal")).to_have_text("updates every 5 s")


def test_a_filtered_list_stays_filtered_when_it_renews(tab: Tab) -> None:
    page = tab.page
    page.goto("/groups")
    page.get_by_label("name contains").fill(scene.ANALYTICS)
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page).to_have_url(re.compile(f"filter={scene.ANALYTICS}"))
    page.get_by_label("name contains").blur()
    with page.expect_response(f"**/groups?filter={scene.ANALYTICS}*"):
        page.evaluate("htmx.trigger('#content', 'renew')")
    expect(page.get_by_label("name contains")).to_have_value(scene.ANALYTICS)
    expect(page.locator("tbody tr")).to_have_count(1)


def test_a_hidden_page_asks_nothing_and_one_that_is_looked_at_again_renews_at_once(tab: Tab) -> None:
    page = tab.page
    page.goto("/overview")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url) if "/static/" not in request.url else None)
    hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true})"
    page.evaluate(hide % "true")
    page.evaluate("htmx.trigger('#content', 'renew')")
    assert not requests
    page.evaluate(hide % "false")
    with page.expect_response("**/overview"):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_a_command_is_copied(tab: Tab) -> None:
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = tab.page
    page.goto(f"/transactions/one?topic={scene.ORDERS}&partition=0&start_offset=4")
    page.get_by_role("button", name="copy").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == f"oncelog txn abort --topic {scene.ORDERS} --partition 0 --start-offset 4"


def test_every_state_has_its_address(tab: Tab) -> None:
    page = tab.page
    page.goto("/transactions")
    page.get_by_label("verdict").select_option("live")
    page.get_by_label("topic").fill(scene.PAYMENTS)
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("row")).to_have_count(2)
    address = page.url
    page.get_by_role("link", name=scene.LIVE).click()
    page.go_back()
    assert page.url == address
    expect(page.get_by_role("row")).to_have_count(2)
    page.go_forward()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Transactional id {scene.LIVE}")
    page.goto(address)
    expect(page.get_by_label("verdict")).to_have_value("live")
    expect(page.get_by_label("topic")).to_have_value(scene.PAYMENTS)
    expect(page).to_have_title("Transactions · oncelog")
