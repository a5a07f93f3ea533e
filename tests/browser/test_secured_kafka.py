"""A console, and ``oncelog explain``, with the login that an Apache Kafka asks for over TLS, by the user's own file."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client, Committed
from oncelog.client.programs.group import commit_offsets
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from tests.browser.test_secured_cluster import console_of
from tests.browser.watch import Open
from tests.interop.admin.lab import ByHand, at
from tests.interop.client.secured import PASSWORD, USER, SecuredKafka, make_certificates
from tests.waiting import HANG_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.slow, pytest.mark.java]
TOPIC, GROUP = "orders", "billing"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """An Apache Kafka with a group behind an open transaction."""
    directory = tmp_path_factory.mktemp("secured")
    make_certificates(directory)
    with SecuredKafka(directory) as running:
        running.add_user()
        with Client(running.bootstrap_servers) as client:
            now_ms = int(time.time() * 1000)  # Or retention takes it at once.
            create_topic(client, NewTopic(TOPIC, partitions=1))
            client.produce(at(TOPIC), build_batch([Record(0, now_ms, b"<b>key</b>", b"value", ())]))
            ByHand(client, "holder").begin(at(TOPIC))
            commit_offsets(client, GROUP, {at(TOPIC): Committed(1)})
            yield running


def settings(kafka: SecuredKafka, path: Path, mechanism: str, password: str = PASSWORD) -> Path:
    """A file of client settings as Java's tools take it; a password may have any characters."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    escaped = password.replace('"', r"\\\"")
    path.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={kafka.certificates / 'ca.pem'}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{module} required "
        f'username="{USER}" password="{escaped}";\n'
    )
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_every_page_by_login_over_tls(tabs: Open, kafka: SecuredKafka, tmp_path: Path, mechanism: str) -> None:
    file = settings(kafka, tmp_path / "client.properties", mechanism)
    with console_of(kafka.address("SASL_SSL"), file, PASSWORD) as address:
        tab = tabs(address)
        page = tab.page
        wait_until(lambda: page.request.get(f"{address}/health.json").ok, "its answer")
        for state in ("/overview", "/topics", f"/topics/one?name={TOPIC}", "/groups", "/producers", "/mirrors"):
            answer = page.goto(state)
            assert answer is not None
            assert answer.status == 200, page.get_by_role("alert").first.text_content()
            assert PASSWORD not in page.content()
        page.goto("/transactions")
        expect(page.get_by_role("row").filter(has_text="holder")).to_have_count(1)
        page.goto(f"/messages?topic={TOPIC}&from=first")
        expect(page.get_by_text("<b>key</b>")).to_be_visible()
        page.goto(f"/explain?kind=group&name={GROUP}")
        expect(page.get_by_text("held-by-transaction").first).to_be_visible()
        commands = page.locator(".command code").all_text_contents()
        assert any("--command-config" in command for command in commands), commands
        assert not any(PASSWORD in command for command in commands)
        value = page.request.get(f"/messages/download?topic={TOPIC}&isolation=all")
        lines = [json.loads(line) for line in value.text().splitlines()]
        assert [line.get("state", line) for line in lines][:1] == ["plain"]


def test_a_wrong_password_is_said_on_the_page(tabs: Open, kafka: SecuredKafka, tmp_path: Path) -> None:
    file = settings(kafka, tmp_path / "client.properties", "SCRAM-SHA-256", "wrong")
    with console_of(kafka.address("SASL_SSL"), file, "wrong-password") as address:
        page = tabs(address).page
        wait_until(lambda: page.request.get(f"{address}/health.json").ok, "its answer")
        answer = page.goto("/overview")
        assert answer is not None
        assert answer.status == 503
        expect(page.get_by_role("alert").first).to_contain_text("SCRAM-SHA-256")


def test_explain_by_the_command_line(kafka: SecuredKafka, tmp_path: Path) -> None:
    file = settings(kafka, tmp_path / "client.properties", "SCRAM-SHA-512")
    command = [sys.executable, "-m", "oncelog", "explain", "group", GROUP, "--command-config", str(file)]
    command += ["--bootstrap-servers", kafka.address("SASL_SSL")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=True)
    assert "held-by-transaction" in done.stdout
    assert PASSWORD not in done.stdout + done.stderr
