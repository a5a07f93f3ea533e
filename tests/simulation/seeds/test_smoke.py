"""A few seeds on every test run, whole simulations that find nothing wrong: together every workload and every fault."""

from __future__ import annotations

import random
from typing import Final

import pytest

from oncelog.sim.faults.brokers import AT_ANSWERS
from oncelog.sim.faults.plan import KINDS
from oncelog.sim.seeds.scenario import draw_scenario
from oncelog.sim.seeds.simulation import simulate
from oncelog.sim.workloads.hangs.workload import HangingTransactions
from oncelog.sim.workloads.old_copiers import OldCopiers
from oncelog.sim.workloads.selection import KINDS as WORKLOADS

pytestmark = pytest.mark.slow

SAFETY_S: Final = 40
COUNT: Final = 12
"""Of the seeds: what a minute is enough for on the slowest machine."""
CANDIDATES: Final = range(100, 400)


def drawn(seed: int) -> frozenset[str]:
    """Workloads and kinds of faults, by name."""
    scenario = draw_scenario(seed, SAFETY_S * 1000, None)
    return frozenset(
        {type(workload).__name__ for workload in scenario.workloads} | {fault.kind for fault in scenario.plan}
    )


def chosen() -> list[int]:
    """Seeds that see the most together: which they are changes whenever scenes are drawn in another way."""
    scenarios = {seed: drawn(seed) for seed in CANDIDATES}
    seen: set[str] = set()
    seeds: list[int] = []
    while len(seeds) < COUNT:
        best = max(scenarios, key=lambda seed: len(scenarios[seed] - seen))
        if scenarios[best] <= seen:
            seen.clear()  # all of it once: then all of it again, in other company
            continue
        seen |= scenarios.pop(best)
        seeds.append(best)
    return seeds


SEEDS: Final = chosen()


def test_every_workload_and_every_fault_is_among_them() -> None:
    alone = [kind for name, kind in WORKLOADS.items() if name != "reassign"]  # which takes several brokers
    workloads = {type(kind.draw("name", random.Random(1), 2)).__name__ for kind in alone}
    beside = {HangingTransactions.__name__, OldCopiers.__name__, *AT_ANSWERS}
    assert frozenset().union(*map(drawn, SEEDS)) == {*workloads, *beside, *KINDS}


@pytest.mark.parametrize("seeds", [tuple(SEEDS[first::4]) for first in range(4)], ids=str)
def test_nothing_is_violated(seeds: tuple[int, ...]) -> None:
    requests = 0
    for seed in seeds:
        outcome = simulate(seed, safety_s=SAFETY_S)
        assert outcome.violations == [], f"simulate({seed}, safety_s={SAFETY_S}): {outcome.workloads}"
        requests += outcome.requests
    assert requests > 500
