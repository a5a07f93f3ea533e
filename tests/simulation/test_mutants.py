"""A simulator that finds nothing proves nothing: mutants fall. All of them: docs/internals/simulation.md."""

from __future__ import annotations

from inspect import getattr_static
from pathlib import Path
from typing import Final

import pytest

from oncelog.sim.faults.plan import ALL_KINDS
from oncelog.sim.seeds import simulation
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutants.shares import SHARES
from tests.simulation.mutation import World

pytestmark = pytest.mark.slow

SAFETY_S: Final = 40
"""As the seeds of `make test-long` that find nothing wrong (``test_smoke``): what falls, falls early, and a seed three
times as long sees no more of it."""


@pytest.mark.parametrize(
    ("name", "seeds"),
    [
        ("skip-marker", 5),
        ("acknowledge-before-sync", 20),
        pytest.param("reuse-epoch", 10, marks=pytest.mark.long),
        ("new-offset-for-duplicate", 20),
        pytest.param("forget-parked", 20, marks=pytest.mark.long),
    ],
)
def test_a_mutant_falls(name: str, seeds: int) -> None:
    with MUTANTS[name].planted():
        assert any(simulation.simulate(seed, safety_s=SAFETY_S).violations for seed in range(seeds))


@pytest.mark.long
@pytest.mark.parametrize("name", [mutant.name for mutant in SHARES])
def test_a_mutant_of_share_groups_falls(name: str) -> None:
    seeds = World.of(name).seeds(20, SAFETY_S)
    with MUTANTS[name].planted():
        assert any(simulation.simulate(seed, safety_s=SAFETY_S).violations for seed in seeds)


def test_a_mutant_leaves_no_trace() -> None:
    for mutant in MUTANTS.values():
        right = getattr_static(mutant.owner, mutant.attribute)
        with mutant.applied():
            assert getattr_static(mutant.owner, mutant.attribute) is not right
        assert getattr_static(mutant.owner, mutant.attribute) is right


def test_mutants_and_faults_are_on_the_simulators_page() -> None:
    page = (Path(__file__).parents[2] / "docs/internals/simulation.md").read_text()
    assert [name for name in MUTANTS if page.count(f"\n| `{name}` |") != 1] == []
    assert [kind for kind in ALL_KINDS if f"`{kind}`" not in page] == []


def test_there_are_enough_of_them() -> None:
    assert len(MUTANTS) >= 30
    assert all(name == mutant.name and mutant.what for name, mutant in MUTANTS.items())
