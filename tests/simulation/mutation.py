"""The mutation score: each mutant over seeds 0, 1, 2 … until a seed that is clean without it breaks a rule.

``python -m tests.simulation.mutation [NAME …] [--seeds 50] [--workers 2] [--length 100]`` prints the rows of the table
in docs/internals/simulation.md. Mutants are looked for among faults of their kinds, those of clusters in clusters, and
some only in the seeds that draw their workload. It takes minutes. A seed that breaks a rule with a mutant also
runs without it, and is reported when it breaks one there. ``--length``: seconds of faults in a seed; a shorter
one draws other faults.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import count as counted
from itertools import islice
from typing import NamedTuple

from oncelog.sim.seeds.cluster_scenario import draw_cluster_scenario
from oncelog.sim.seeds.scenario import draw_scenario
from oncelog.sim.seeds.simulation import SAFETY_S, simulate
from oncelog.sim.workloads.kit.workload import Workload
from tests.simulation.mutants import MUTANTS, OF_CLUSTERS


class World(NamedTuple):
    """The world in which a mutant is looked for."""

    is_cluster: bool
    kinds: tuple[str, ...]
    """Of faults; none: as seeds draw them."""
    workload: type[Workload] | None
    """Only the seeds that draw it are run; None: all."""

    @classmethod
    def of(cls, name: str) -> World:
        """The world of a mutant."""
        return cls(name in OF_CLUSTERS, MUTANTS[name].faults, MUTANTS[name].workload)

    def seeds(self, count: int, length_s: int) -> Iterator[int]:
        """The first seeds that are of this world."""
        if self.workload is None:
            return iter(range(count))
        return islice((seed for seed in counted() if self._draws_workload(seed, length_s)), count)

    def _draws_workload(self, seed: int, length_s: int) -> bool:
        draw = draw_cluster_scenario if self.is_cluster else draw_scenario
        scenario = draw(seed, length_s * 1_000, None, kinds=self.kinds)
        return any(type(workload) is self.workload for workload in scenario.workloads)


class Score(NamedTuple):
    """The score of one mutant: the rule that caught it and how many seeds that took, None when none did."""

    name: str
    rule: str | None
    seeds: int
    unclean: tuple[str, ...]
    """Seeds that broke a rule without the mutant, too; they do not count."""


def main() -> None:
    """Print a row for each mutant, in the order of the list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="mutants to try (default: all)")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--length", type=int, default=SAFETY_S)
    options = parser.parse_args()
    names = options.names or list(MUTANTS)
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        caught = 0
        for score in pool.imap(_score, [(name, options.seeds, options.length) for name in names], chunksize=1):
            caught += score.rule is not None
            for said in score.unclean:
                print(said, flush=True)
            print(
                f"| `{score.name}` | {MUTANTS[score.name].what} | {score.rule or '**none**'} | {score.seeds} |",
                flush=True,
            )
    print(f"{caught} of {len(names)} mutants fell within {options.seeds} seeds")


def _score(task: tuple[str, int, int]) -> Score:
    name, seeds, length_s = task
    world = World.of(name)
    unclean: list[str] = []
    for number, seed in enumerate(world.seeds(seeds, length_s), 1):
        violation = next(_violations(seed, name, length_s, world), None)
        if violation is None:
            continue
        without = next(_violations(seed, None, length_s, world), None)
        if without is None:
            return Score(name, violation.split(" ", 1)[0].rstrip(":"), number, tuple(unclean))
        joined = " ".join(("in a cluster" if world.is_cluster else "alone", *world.kinds))
        unclean.append(f"seed {seed} is not clean {joined} without a mutant: {without}")
    return Score(name, None, seeds, tuple(unclean))


def _violations(seed: int, mutant: str | None, length_s: int, world: World) -> Iterator[str]:
    applied = nullcontext() if mutant is None else MUTANTS[mutant].applied()
    try:
        brokers = None if world.is_cluster else 1
        with applied:
            outcome = simulate(seed, safety_s=length_s, brokers=brokers, kinds=world.kinds)
        yield from outcome.violations
    except Exception as error:  # noqa: BLE001 - what breaks the simulator itself has been noticed, too
        yield f"CRASH {error!r}"


if __name__ == "__main__":
    main()
