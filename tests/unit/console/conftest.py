"""One broker for all tests of the console, with one hanging transaction and names that are hostile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from oncelog.client.blocking import Client
from oncelog.console.pages import groups, overview
from oncelog.console.records import decoding, merged_records
from oncelog.testing.broker import Broker
from tests.unit.console.visits import visiting


@pytest.fixture(autouse=True)
def patient_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy with other tests reads and decodes late; the bounds of time are tests of their own."""
    monkeypatch.setattr(merged_records, "TIME_MS", 120_000)
    monkeypatch.setattr(decoding, "ANSWER_S", 10.0)
    monkeypatch.setitem(decoding.Decoder.__init__.__kwdefaults__, "budget_s", 120.0)


@pytest.fixture(autouse=True)
def patient_first_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first page waits for the first diagnosis, which a busy machine makes late."""
    for page in (overview, groups):
        monkeypatch.setattr(page, "FIRST_WAIT_S", 60.0)


@pytest.fixture(scope="package")
def broker() -> Iterator[Broker]:
    """A broker."""
    with Broker({"transaction.partition.verification.enable": "false"}) as started:  # Or nothing could hang.
        yield started


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as made:
        yield made


@pytest.fixture
def reader(broker: Broker) -> Iterator[TestClient]:
    """Somebody who may only read."""
    with visiting(broker.bootstrap_servers) as visitor:
        yield visitor


@pytest.fixture
def changer(broker: Broker, tmp_path: Path) -> Iterator[TestClient]:
    """Somebody who may change things; the audit is ``tmp_path / "audit"``."""
    with visiting(broker.bootstrap_servers, audit_log=tmp_path / "audit") as visitor:
        yield visitor
