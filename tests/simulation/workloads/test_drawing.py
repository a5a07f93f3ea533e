"""Every workload comes to its end in a calm world, and has kept the broker busy."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from oncelog.sim.scene import draw_scene
from oncelog.sim.simulation import Simulation
from oncelog.sim.workloads.drawing import KINDS, draw_workloads

SECONDS = 10


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_calm_world_has_no_violations(kind: str) -> None:
    drawn = KINDS[kind].draw(f"{kind}0", random.Random(1), 2)
    scene = replace(draw_scene(1, SECONDS * 1000, []), workloads=[drawn], transaction_version=2)
    outcome = Simulation(1, scene, SECONDS, None).run()
    assert outcome.violations == []
    assert outcome.requests > 5 * SECONDS


def test_what_needs_transactions_v2_is_not_drawn_without() -> None:
    names = {repr(one).partition("(")[0] for seed in range(200) for one in draw_workloads(random.Random(seed), 1)}
    assert names == {"Administrators", "Churn", "Cleaning", "Consumers", "Copiers", "Plain", "Producers"}
