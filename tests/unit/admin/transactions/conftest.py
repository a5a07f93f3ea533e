"""Administration's programs are tested with both drivers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.admin.transactions.cluster import DRIVER


@pytest.fixture(params=["blocking", "aio"])
def driver(request: pytest.FixtureRequest) -> Iterator[str]:
    """The driver that carries out the programs of a FakeCluster."""
    token = DRIVER.set(request.param)
    yield request.param
    DRIVER.reset(token)
