"""A broker with two-phase commit for all tests of the sink; the session is that of ``tests/spark``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oncelog.testing import Broker
from tests.spark.sink.queries import TWO_PHASE


@pytest.fixture(scope="session")
def sink_broker() -> Iterator[Broker]:
    with Broker(TWO_PHASE) as running:
        yield running
