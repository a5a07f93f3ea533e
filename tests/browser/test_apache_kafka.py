"""Every page of the console on Apache Kafka, which has neither oncelog's metrics nor two-phase transactions."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from oncelog.console.pages import PAGES
from tests.browser import scene
from tests.browser.conftest import OnCall
from tests.browser.test_every_page import STATES
from tests.browser.watch import Open
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.slow, pytest.mark.java]


def test_every_page_is_shown_in_its_json_too(tabs: Open, kafka: OnCall) -> None:
    tab = tabs(kafka.console.origin, viewport={"width": 375, "height": 667})
    wrong, seen = [], set()
    for state in STATES:
        answer = tab.page.goto(state)
        assert answer is not None
        path, _, parameters = state.partition("?")
        if answer.status not in (200, 400, 404):
            wrong.append(f"{state}: {answer.status}, {tab.page.get_by_role('alert').first.text_content()}")
        if answer.status == 200:
            value = tab.page.request.get(f"{path}.json?{parameters}")
            seen.add(path)
            wrong += [f"{state} as JSON: {value.status}"] if value.status != 200 else []
        wrong += [f"{state} is too wide: {line}" for line in tab.overflow()]
        if tab.page.get_by_text("Some of this could not be read").count():
            wrong.append(f"{state}: {tab.page.locator('.notice.warning').first.text_content()}")
    assert not wrong, "\n".join(wrong)
    assert {page.path for page in PAGES} - seen <= {"/audit/run", "/audit/report"}


def test_metrics_are_those_of_the_protocol_and_say_so(tabs: Open, kafka: OnCall) -> None:
    tab = tabs(kafka.console.origin)
    page = tab.page
    wait_until(lambda: page.goto("/metrics") and page.locator("#plot-records path.line").count(), "rates", poll_s=0.2)
    expect(page.locator(".plot")).to_have_count(6)
    expect(page.locator("#plot-lag")).to_contain_text(scene.BILLING)
    expect(page.locator("#plot-transactions")).to_contain_text("Ongoing")
    expect(page.get_by_text("Apache Kafka's brokers have no such port")).to_be_visible()
    assert tab.axe() == []
