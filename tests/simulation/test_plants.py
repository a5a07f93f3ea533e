"""A simulator that finds nothing proves nothing: planted bugs fall. All of them: docs/internals/simulation.md."""

from __future__ import annotations

import pytest

from oncelog.sim.plants import PLANTS
from oncelog.sim.simulation import simulate

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "seeds"),
    [
        ("skip-marker", 5),
        ("acknowledge-before-sync", 20),
        ("reuse-epoch", 10),
        ("new-offset-for-duplicate", 20),
        ("forget-parked", 20),
    ],
)
def test_a_planted_bug_falls(name: str, seeds: int) -> None:
    assert any(simulate(seed, plant=PLANTS[name].planted()).violations for seed in range(seeds))


def test_a_plant_leaves_no_trace() -> None:
    for plant in PLANTS.values():
        right = plant.owner.__dict__[plant.attribute]
        with plant.planted():
            assert plant.owner.__dict__[plant.attribute] is not right
        assert plant.owner.__dict__[plant.attribute] is right


def test_there_are_enough_of_them() -> None:
    assert len(PLANTS) >= 30
    assert all(name == plant.name and plant.what for name, plant in PLANTS.items())
