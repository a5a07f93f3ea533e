"""A fixed set of seeds on every test run: whole simulations, with their faults, that find nothing wrong."""

from __future__ import annotations

import pytest

from oncelog.sim.simulation import simulate

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seeds", [range(100, 103), range(103, 106), range(106, 109), range(109, 112)], ids=str)
def test_nothing_is_violated(seeds: range) -> None:
    requests = 0
    for seed in seeds:
        outcome = simulate(seed, safety_s=40)
        assert outcome.violations == [], f"oncelog sim --seed {seed}: {outcome.workloads}"
        requests += outcome.requests
    assert requests > 500
