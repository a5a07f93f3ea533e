"""A few seeds on every test run, whole simulations that find nothing wrong: together every workload and every fault.

`make test-long` runs more of them, and each for longer.
"""

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

SAFETY_S: Final = 20
LONG_SAFETY_S: Final = 40
LONG_COUNT: Final = 12
CANDIDATES: Final = range(100, 700)


def drawn(seed: int, safety_s: int) -> frozenset[str]:
    """Workloads and kinds of faults, by name."""
    scenario = draw_scenario(seed, safety_s * 1000, None)
    return frozenset(
        {type(workload).__name__ for workload in scenario.workloads} | {fault.kind for fault in scenario.plan}
    )


def chosen(safety_s: int, count: int) -> list[int]:
    """Seeds that see the most together: all of it once if they are ``count`` at least. Which they are changes whenever
    scenes are drawn in another way."""
    scenarios = {seed: drawn(seed, safety_s) for seed in CANDIDATES}
    everything = frozenset().union(*scenarios.values())
    seen: set[str] = set()
    seeds: list[int] = []
    while seen < everything or len(seeds) < count:
        best = max(scenarios, key=lambda seed: len(scenarios[seed] - seen))
        if scenarios[best] <= seen:
            seen.clear()  # all of it once: then all of it again, in other company
            continue
        seen |= scenarios.pop(best)
        seeds.append(best)
    return seeds


SEEDS: Final = chosen(SAFETY_S, 0)


def test_every_workload_and_every_fault_is_among_them() -> None:
    alone = [kind for name, kind in WORKLOADS.items() if name != "reassign"]  # which takes several brokers
    workloads = {type(kind.draw("name", random.Random(1), 2)).__name__ for kind in alone}
    beside = {HangingTransactions.__name__, OldCopiers.__name__, *AT_ANSWERS}
    assert frozenset().union(*(drawn(seed, SAFETY_S) for seed in SEEDS)) == {*workloads, *beside, *KINDS}


def assert_nothing_is_violated(seed: int, safety_s: int) -> int:
    """Returns the number of requests."""
    outcome = simulate(seed, safety_s=safety_s)
    assert outcome.violations == [], f"simulate({seed}, safety_s={safety_s}): {outcome.workloads}"
    return outcome.requests


@pytest.mark.parametrize("seeds", [tuple(SEEDS[first::4]) for first in range(4)], ids=str)
def test_nothing_is_violated(seeds: tuple[int, ...]) -> None:
    assert sum(assert_nothing_is_violated(seed, SAFETY_S) for seed in seeds) > 500


@pytest.mark.long
def test_nothing_is_violated_in_longer_runs() -> None:
    for seed in chosen(LONG_SAFETY_S, LONG_COUNT):
        assert_nothing_is_violated(seed, LONG_SAFETY_S)
