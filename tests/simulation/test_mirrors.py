"""Two clusters and a mirror in the simulator: both sides equal, and groups neither lose nor repeat."""

from __future__ import annotations

import pytest

from tests.simulation.mirroring import run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.long), 1])
def test_both_sides_are_equal_in_the_end(seed: int) -> None:
    told = run(seed, length_ms=15_000)
    assert told.records > 0
    assert told.transactions > 0


def test_the_same_seed_is_the_same_run() -> None:
    assert run(2, length_ms=3_000) == run(2, length_ms=3_000)
