"""One browser, one broker with its scene and one console for all tests here; each test has tabs of its own.

The whole room runs in one worker (``tests.conftest``), and is skipped where no browser is.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oncelog.client.blocking import Client
from oncelog.schemas import Reference, Registry, Schema
from oncelog.schemas.client.settings import parse_settings
from oncelog.testing import Broker
from tests.browser import chromium, scene
from tests.browser.served import Served
from tests.interop.admin.lab import WITHOUT_VERIFICATION
from tests.peers.apache_kafka import ApacheKafka
from tests.unit.console.audits.test_report import document
from tests.unit.schemas.fake_registry import fake_registry
from tests.unit.schemas.memory_registry import MemoryRegistry
from tests.unit.spark.audit.logs import Coordinator, Log
from tests.waiting import LABEL_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.watch import Open, Tab

CONFIG = {**WITHOUT_VERIFICATION, "node.id": "1", "transaction.two.phase.commit.enable": "true"}


@dataclass(frozen=True)
class OnCall:
    """A cluster with the scene, its console, and the file of its changes."""

    servers: str
    console: Served
    audit_log: Path

    def outcomes(self, subject: str) -> list[tuple[str, str]]:
        """Action and outcome of the audit's lines about a transactional id or a group."""
        lines = [json.loads(line) for line in self.audit_log.read_text("utf-8").splitlines()]
        return [(line["action"], line["outcome"]) for line in lines if subject in json.dumps(line)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip all of it without a browser."""
    reason = chromium.missing()
    for item in items:
        if item.get_closest_marker("browser") and reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """The browser, without a window. Playwright's loop runs in this thread as long as the browser does, and tests of
    other rooms have loops of their own: so it ends with this room."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=LABEL_S * 1000)
    with sync_playwright() as playwright:
        launch = playwright.chromium.launch(executable_path=chromium.executable(), args=list(chromium.FLAGS))
        yield launch
        launch.close()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A broker with the scene, and a member in the group ``dashboards``."""
    with Broker(CONFIG) as running, Client(running.bootstrap_servers) as client:
        scene.plant(running.bootstrap_servers)
        consumer = scene.member(client)
        yield running
        consumer.close()


@pytest.fixture(scope="session")
def audit_log() -> Iterator[Path]:
    """The file of the console's changes."""
    with tempfile.TemporaryDirectory(prefix="oncelog-browser-") as directory:
        yield Path(directory) / "audit"


@pytest.fixture(scope="session")
def console(broker: Broker, audit_log: Path) -> Iterator[Served]:
    """A console of it that may change things, with a report of an audit, a directory to audit, and plots."""
    report, data = audit_log.with_name("report.json"), audit_log.with_name("data")
    report.write_bytes(document())
    log, coordinator = Log(data, "audited"), Coordinator(data)
    log.transaction(epoch=0)
    log.data(epoch=1)
    coordinator.ended("audited-0", epoch=0, name="audited-service")
    coordinator.write()
    log.write()
    more: dict[str, Any] = {"audit_reports": (report,), "audit_data": (data,), "sample_every_s": 2.0}
    with fake_registry(MemoryRegistry()) as registry:
        register_schemas(registry.url)
        more["registry"] = parse_settings(registry.url)
        with Served(broker.bootstrap_servers, audit_log=audit_log, **more) as running:
            yield running


def register_schemas(url: str) -> None:
    """Schemas 1 and 2, which uses it: in two subjects, with a line that is wider than a phone."""
    item = Schema(json.dumps({"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]}))
    fields = [{"name": "item", "type": "Item", "doc": "A very long line. " * 20}]
    text = json.dumps({"type": "record", "name": "Order", "fields": fields})
    with Registry(url) as registry:
        registry.register("item", item)
        for subject in ("orders-value", "returns-value"):
            registry.register(subject, Schema(text, references=(Reference("Item", "item", 1),)))


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnCall]:
    """Apache Kafka."""
    audit_log = tmp_path_factory.mktemp("audit") / "audit"
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), properties=WITHOUT_VERIFICATION) as peer:
        scene.plant(peer.bootstrap_servers, two_phase=False)
        with Served(peer.bootstrap_servers, audit_log=audit_log, sample_every_s=1.0) as console:
            yield OnCall(peer.bootstrap_servers, console, audit_log)


@pytest.fixture
def tabs(browser: Browser) -> Iterator[Open]:
    """Opens tabs at an origin; each is checked at the end of the test."""
    from tests.browser.watch import Tab

    opened: list[Tab] = []

    def open_tab(origin: str, **settings: Any) -> Tab:
        opened.append(Tab(browser, origin, **settings))
        return opened[-1]

    yield open_tab
    for item in opened:
        item.close()
    for item in opened:
        item.check()


@pytest.fixture
def tab(tabs: Open, console: Served) -> Tab:
    """A tab at the console."""
    return tabs(console.origin)
