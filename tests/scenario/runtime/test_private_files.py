"""Files with records, secrets or audits belong to their owner alone, whatever the umask is."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.admin.transactions.audit_trail import audit_file
from oncelog.client.blocking.client import Client
from oncelog.client.blocking.transactions import TransactionalProducer, TransactionSettings
from oncelog.security.setup import SetupRequest, issue_client, set_up
from oncelog.testing import Broker


@pytest.fixture
def _lavish_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): f"{stat.S_IMODE(path.stat().st_mode):04o}"
        for path in (directory, *directory.rglob("*"))
    }


@pytest.mark.slow
@pytest.mark.usefixtures("_lavish_umask")
def test_a_fresh_data_directory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / "fresh"
    config = {"oncelog.flight.recorder.max.bytes": "1000000"}
    with Broker(data_dir=directory, config=config) as broker:
        settings = TransactionSettings("x")
        with (
            Client(broker.bootstrap_servers) as client,
            TransactionalProducer(client, settings, create_topics=True) as producer,
        ):
            producer.initialize()
            with producer.transaction():
                producer.send("t", b"v")
    result = modes(directory)
    assert {"t-0/00000000000000000000.log", "coordination.db", "flight-recording.jsonl", ".lock"} <= result.keys()
    assert {name: mode for name, mode in result.items() if mode not in ("0600", "0700")} == {}
    assert "chmod" not in caplog.text


def test_an_existing_directory_that_others_may_enter(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tmp_path.chmod(0o755)
    with caplog.at_level(logging.WARNING, "oncelog.broker"), Broker(data_dir=tmp_path):
        pass
    assert f"other users have access to {tmp_path} (mode 0755): run chmod 700 on it" in caplog.text
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


@pytest.mark.usefixtures("_lavish_umask")
def test_the_audit_of_an_administrator(tmp_path: Path) -> None:
    audit_file(tmp_path / "new" / "audit.jsonl")({"user": "\x9b\u202e"})
    assert modes(tmp_path / "new") == {".": "0700", "audit.jsonl": "0600"}
    line = (tmp_path / "new" / "audit.jsonl").read_text()
    assert line.strip().isprintable()
    assert json.loads(line) == {"user": "\x9b\u202e"}


@pytest.mark.slow
@pytest.mark.usefixtures("_lavish_umask")
def test_the_files_of_a_secured_broker(tmp_path: Path) -> None:
    set_up(tmp_path / "secured", SetupRequest())
    issue_client(tmp_path / "secured", "alice", SetupRequest().lifetime)
    result = modes(tmp_path / "secured")
    assert result.pop(".") == "0700"
    assert {name for name, mode in result.items() if mode != "0600"} == {"ca.pem"}
