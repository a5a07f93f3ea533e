"""A console of a cluster that asks for a login: the command line as it is typed, with the user's own client settings,
and pages that show what the user may see and say what he may not."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import expect

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client, Committed
from oncelog.client.programs.group import commit_offsets
from oncelog.testing import Broker
from tests.browser.watch import Open
from tests.interop.admin.lab import at
from tests.peers.process import free_ports
from tests.peers.reaper import watch
from tests.waiting import HANG_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.slow]
SECRET = "scram-secret-of-the-reader"


def properties(broker: Broker, user: str, path: Path) -> Path:
    """The file of a user's client settings, as Java's tools take it."""
    config = broker.client_config(user, java=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in config.items() if key != "bootstrap.servers"))
    path.chmod(0o600)
    return path


@contextmanager
def console_of(bootstrap: str, settings: Path, secret: str = SECRET) -> Iterator[str]:
    """``oncelog console --command-config`` as a process: its address. It never prints the secret."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "oncelog", "console", "--listen", f"127.0.0.1:{port}", "--sample-every", "0"]
    command += ["--bootstrap-servers", bootstrap, "--command-config", str(settings)]
    log = settings.with_suffix(".log")
    with log.open("wb") as file, subprocess.Popen(command, stderr=file, start_new_session=True) as process:
        watch(process.pid)
        try:
            wait_until(lambda: b"console of" in log.read_bytes() or process.poll() is not None, log.read_text)
            yield f"http://127.0.0.1:{port}"
            process.send_signal(signal.SIGTERM)
            process.wait(HANG_S)
        finally:
            process.kill()
    text = log.read_text()
    assert text.count("\n") == 1, text
    assert secret not in text


def test_pages_show_what_the_user_may_see_and_say_what_he_may_not(tabs: Open, tmp_path: Path) -> None:
    with Broker(security="scram") as broker:
        broker.add_user("reader", SECRET)
        with Client(broker.link_servers, config=broker.security.link_config()) as client:
            for name in ("seen", "unseen"):
                create_topic(client, NewTopic(name))
                client.topic(name)
                commit_offsets(client, f"{name}-group", {at(name): Committed(0)})
        broker.allow("reader", "read", "describe", topic="seen")
        broker.allow("reader", "describe", group="seen-group")
        with console_of(
            broker.bootstrap_servers, properties(broker, "reader", tmp_path / "reader.properties")
        ) as address:
            tab = tabs(address)
            page = tab.page
            wait_until(lambda: page.request.get(f"{address}/health.json").ok, "its answer")
            page.goto("/topics")
            expect(page.get_by_role("cell", name="seen", exact=True)).to_be_visible()
            expect(page.get_by_role("cell", name="unseen")).to_have_count(0)
            page.goto("/groups/one?name=seen-group")
            expect(page.get_by_role("link", name="seen-0")).to_be_visible()
            answer = page.goto("/groups/one?name=unseen-group")
            assert answer is not None
            assert answer.status == 403
            expect(page.get_by_role("alert").first).to_contain_text("GROUP_AUTHORIZATION_FAILED")
            assert tab.axe() == []
            page.goto("/explain?kind=group&name=seen-group")
            expect(page.get_by_role("heading", name="Unknown")).to_be_visible()
            for state in ("/overview", "/transactions", "/producers", "/mirrors", "/messages?topic=seen"):
                answer = page.goto(state)
                assert answer is not None
                assert answer.status == 200, page.get_by_role("alert").first.text_content()
            page.goto("/explain?kind=partition&name=seen&partition=0")
            assert SECRET not in page.content()
