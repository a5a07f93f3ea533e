"""An audit in a browser: started over a directory, seen while it runs, and its report opened."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.watch import Tab

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.slow]


def test_an_audit_is_run_and_its_report_opened(tab: Tab) -> None:
    page = tab.page
    page.goto("/audit")
    page.get_by_label("copied within").fill("0")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Audit run-1")
    assert tab.axe() == []
    page.get_by_role("link", name="Open the report").click()
    expect(page.get_by_role("alert").first).to_contain_text("findings")
    expect(page.get_by_role("table").last).to_contain_text("audited-0")
    assert tab.axe() == []
    page.goto("/audit")
    expect(page.get_by_role("row").filter(has_text="run-1").first).to_contain_text("done")
