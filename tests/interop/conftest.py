"""Brokers for the clients: one in this process for each scenario."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oncelog.testing import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A fresh broker with Apache Kafka's defaults where they matter to clients."""
    with Broker({"node.id": "1", "offsets.topic.num.partitions": "4", "log.retention.ms": "-1"}) as running:
        yield running
