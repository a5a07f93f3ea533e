"""Logins over TLS in a browser: by name and password, by a token, by a proxy's header; sessions that end; and pages of
others that would send forms, read pages or frame them."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from oncelog.console.admission import sessions
from oncelog.testing import Broker
from oncelog.web.logins import Login, login_of
from tests.browser import scene
from tests.browser.served import Served
from tests.browser.watch import Open
from tests.certificates import Authority

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.slow]
TOKEN = "a secret that is long enough"
UNCHECKED: dict[str, Any] = {"ignore_https_errors": True}
"""The authority is one of the tests."""


def secret(directory: Path, text: str) -> str:
    path = directory / "secret"
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate and its key, in one file."""
    return Authority().broker("127.0.0.1").write(tmp_path_factory.mktemp("tls"))


def served(broker: Broker, identity: Path, login: Login, directory: Path) -> Served:
    """A console with TLS and a login, that may change things."""
    tls: dict[str, Any] = {"tls_certificate": identity, "tls_key": identity}
    return Served(broker.bootstrap_servers, audit_log=directory / "audit", login=login, **tls)


def lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "audit").read_text("utf-8").splitlines()]


def test_name_and_password(tabs: Open, broker: Broker, identity: Path, tmp_path: Path) -> None:
    login = login_of("basic", secret(tmp_path, "ann:right\n"))
    with served(broker, identity, login, tmp_path) as console:
        wrong = tabs(console.origin, http_credentials={"username": "ann", "password": "wrong"}, **UNCHECKED)
        answer = wrong.page.goto("/topics")
        assert answer is not None
        assert (answer.status, answer.headers["www-authenticate"].partition(" ")[0]) == (401, "Basic")
        expect(wrong.page.get_by_role("alert").first).to_have_text("A user name and password are required.")
        expect(wrong.page.get_by_text(scene.ORDERS)).to_have_count(0)
        assert wrong.axe() == []
        assert wrong.context.cookies() == []

        tab = tabs(console.origin, http_credentials={"username": "ann", "password": "right"}, **UNCHECKED)
        answer = tab.page.goto(f"/topics/change?name={scene.EMPTY}")
        assert answer is not None
        assert answer.headers["strict-transport-security"]
        expect(tab.page.locator("header")).to_contain_text("ann")
        assert tab.axe() == []
        [cookie] = tab.context.cookies()
        assert cookie["name"].startswith("__Host-")
        assert (cookie["secure"], cookie["httpOnly"], cookie["sameSite"]) == (True, True, "Lax")
        tab.page.get_by_label("key").fill("retention.ms")
        tab.page.get_by_label("value").fill("3600000")
        tab.page.get_by_role("button", name="Preview the change").click()
        form = tab.page.locator("form.change").first
        form.get_by_label("To confirm").fill(scene.EMPTY)
        form.get_by_role("button").click()
        expect(tab.page.get_by_role("status")).to_contain_text("3600000")
    result = [(line["by"], line["outcome"]) for line in lines(tmp_path)]
    assert [item for item in result if item[0]] == [("ann", "sending"), ("ann", "done")]
    assert ("", "refused") in result


def test_a_token_and_a_session_that_ends(
    tabs: Open, broker: Broker, identity: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = login_of("token", secret(tmp_path, TOKEN))
    with served(broker, identity, login, tmp_path) as console:
        tab = tabs(console.origin, color_scheme="dark", viewport={"width": 375, "height": 667}, **UNCHECKED)
        page = tab.page
        page.clock.install()

        def log_in(token: str = TOKEN) -> None:
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name="Log in").click()

        page.goto("/overview")
        expect(page.get_by_role("alert")).to_have_count(0)
        assert (tab.axe(), tab.overflow()) == ([], [])
        log_in("another token of some length")
        expect(page.get_by_role("alert").first).to_have_text("Wrong token.")
        log_in()
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")

        monkeypatch.setattr(sessions, "LIFETIME_S", 0)
        page.clock.fast_forward(5001)
        expect(page.get_by_role("alert").first).to_contain_text("Your session has ended.")
        assert tab.axe() == []
        monkeypatch.undo()
        log_in()
        expect(page).to_have_url(f"{console.origin}/overview")
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")

        page.goto(f"/topics/change?name={scene.EMPTY}")
        page.get_by_label("To confirm").last.fill(scene.EMPTY)
        monkeypatch.setattr(sessions, "LIFETIME_S", 0)
        page.get_by_role("button", name="Delete topic").click()
        expect(page.get_by_role("alert").first).to_contain_text("nothing was done")
        monkeypatch.undo()
        log_in()
        expect(page).to_have_url(f"{console.origin}/topics/change?name={scene.EMPTY}")
        expect(page.get_by_role("button", name="Delete topic")).to_be_visible()
    result = [(line["outcome"], line["error"]) for line in lines(tmp_path)]
    assert result == [("refused", "a wrong token"), ("refused", "the request has no valid login")]


def test_who_a_proxy_says_it_is(tabs: Open, broker: Broker, identity: Path, tmp_path: Path) -> None:
    with served(broker, identity, login_of("header", "X-Forwarded-User"), tmp_path) as console:
        page = tabs(console.origin, **UNCHECKED).page
        page.goto("/topics")
        expect(page.get_by_role("alert").first).to_have_text("The proxy in front did not send your user name.")
        tab = tabs(console.origin, extra_http_headers={"X-Forwarded-User": "<b>bob</b>"}, **UNCHECKED)
        tab.page.goto("/topics")
        expect(tab.page.locator("header")).to_contain_text("<b>bob</b>")
        expect(tab.page.get_by_role("cell", name=scene.ORDERS)).to_be_visible()


FOREIGN = """<!doctype html><title>another site</title>
<form method="post" action="{origin}/topics/delete?name={topic}"><input name="typed" value="{topic}">
<input name="token" value="guessed"><button>A nice picture</button></form>
<iframe src="{origin}/topics" width="400" height="200"></iframe>"""


@pytest.fixture
def foreign(console: Served) -> Iterator[int]:
    """Another site's page, with a form for the console, and the console in a frame: its port."""

    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(FOREIGN.format(origin=console.origin, topic=scene.EMPTY).encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def read_from(page: Page, address: str) -> str:
    """The answer that a script of one page gets from another, with the browser's cookies."""
    script = "(address) => fetch(address, {credentials: 'include'}).then((one) => one.text(), (error) => `${error}`)"
    return str(page.evaluate(script, address))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_pages_of_others_change_and_read_nothing(
    browser: Browser, console: Served, audit_log: Path, foreign: int, host: str
) -> None:
    """From the same host, whose cookies the browser sends, and from another one."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{console.origin}/topics")
    page.goto(f"http://{host}:{foreign}/")
    assert "TypeError" in read_from(page, f"{console.origin}/topics.json")
    frame = page.frames[1]
    expect(frame.get_by_text(scene.EMPTY)).to_have_count(0)
    page.get_by_role("button", name="A nice picture").click()
    expect(page.get_by_role("alert").first).to_contain_text("This form was sent by another site's page")
    last = json.loads(audit_log.read_text("utf-8").splitlines()[-1])
    assert (last["outcome"], last["path"]) == ("refused", "/topics/delete")
    page.goto(f"{console.origin}/topics/one?name={scene.EMPTY}")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Topic {scene.EMPTY}")
    context.close()
