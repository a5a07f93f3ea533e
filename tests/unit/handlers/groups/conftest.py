"""Fixtures that the tests of the group handlers share."""

from __future__ import annotations

import pytest

from tests.unit.handlers.groups.bench import Bench


@pytest.fixture
def bench() -> Bench:
    """The handlers on one shard."""
    return Bench()
