"""Brokers for the clients: one in this process for each scenario."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oncelog.testing import Broker

HOUR_MS = 3_600_000
CONFIG = {
    "node.id": "1",
    "offsets.topic.num.partitions": "4",
    "log.retention.check.interval.ms": str(HOUR_MS),
    "log.cleaner.backoff.ms": str(HOUR_MS),
}
"""Scenarios have timestamps of long ago: nothing may go before they end, however long they take. The topics' own
defaults stay as they are, for clients ask for them."""


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A fresh broker with Apache Kafka's defaults where they matter to clients."""
    with Broker(CONFIG) as running:
        yield running
