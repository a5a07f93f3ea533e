"""Brokers for the clients: one in this process for each scenario, on the network that the environment asks for."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from oncelog.testing import Broker
from tests.peers import cut_network
from tests.peers.child_environment import for_child_processes

HOUR_MS = 3_600_000
CONFIG = {
    "node.id": "1",
    "offsets.topic.num.partitions": "4",
    "log.retention.check.interval.ms": str(HOUR_MS),
    "log.cleaner.backoff.ms": str(HOUR_MS),
}
"""Scenarios have timestamps of long ago: nothing may go before they end, however long they take. The topics' own
defaults stay as they are, for clients ask for them."""


@pytest.fixture(scope="session", autouse=True)
def network() -> None:
    """Cut all streams of these tests where the environment asks for it."""
    requested = cut_network.requested()
    if requested is not None:
        cut_network.install(requested)
        for_child_processes(os.environ)


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A fresh broker with Apache Kafka's defaults where they matter to clients."""
    with Broker(CONFIG) as running:
        yield running
