"""Random histories of a share group at one broker: what a member was told holds, whatever else happens."""

from __future__ import annotations

import random

import pytest

from tests.scenario.share.history import ShareHistory


@pytest.mark.parametrize("seed", [random.randrange(2**32) for _ in range(3)])
def test_random_histories(seed: int) -> None:
    ShareHistory(seed).run(120)
