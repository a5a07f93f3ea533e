"""Clients of other names and times, for causes that depend on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from oncelog.admin.explain.findings import Cause, Finding, Report
from oncelog.client.blocking import Client
from tests.interop.admin.conftest import FAST
from tests.interop.admin.explain.test_explain import MINUTE_MS, Later


@pytest.fixture
def named(servers: str) -> Iterator[Callable[[str], Client]]:
    """Clients by their client ids."""
    opened: list[Client] = []

    def make(client_id: str) -> Client:
        opened.append(Client(servers, config=replace(FAST, client_id=client_id)))
        return opened[-1]

    yield make
    for client in opened:
        client.close()


@pytest.fixture
def later(servers: str) -> Iterator[Client]:
    """A client a minute ahead: what was done now is a minute old for it."""
    with Client(servers, config=FAST, system=Later(MINUTE_MS)) as opened:
        yield opened


def the(report: Report, cause: Cause) -> Finding:
    [finding] = [finding for finding in report.findings if finding.cause is cause]
    return finding
