"""The mutation score: each planted bug over seeds 0, 1, 2 … until one falls that is clean without it.

``python -m tests.simulation.mutation [NAME …] [--seeds 50] [--workers 2]`` prints the rows of the table in
docs/internals/simulation.md; bugs that need several brokers are looked for in clusters. It takes minutes; one run of
the simulator that is not clean without a plant is said too.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Iterator
from typing import NamedTuple

from oncelog.sim.mutants import MUTANTS, OF_CLUSTERS
from oncelog.sim.simulation import simulate


class Score(NamedTuple):
    """Of one plant: the rule that caught it and how many seeds that took, None when none did."""

    name: str
    rule: str | None
    seeds: int


def main() -> None:
    """Print a row for each plant, in the order of the list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="plants to try (default: all)")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    names = options.names or list(MUTANTS)
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        clean: dict[bool, list[int]] = {}
        for in_clusters in sorted({name in OF_CLUSTERS for name in names}):
            clean[in_clusters] = []
            tried = [(seed, in_clusters) for seed in range(options.seeds)]
            for seed, violation in pool.imap(_clean, tried, chunksize=1):
                if violation is None:
                    clean[in_clusters].append(seed)
                else:
                    where = "in a cluster " if in_clusters else ""
                    print(f"seed {seed} is not clean {where}without a plant: {violation}", flush=True)
        tasks = [(name, clean[name in OF_CLUSTERS]) for name in names]
        caught = 0
        for score in pool.imap(_score, tasks, chunksize=1):
            caught += score.rule is not None
            print(
                f"| `{score.name}` | {MUTANTS[score.name].what} | {score.rule or '**none**'} | {score.seeds} |",
                flush=True,
            )
    print(f"{caught} of {len(names)} planted bugs fell within {options.seeds} seeds")


def _clean(tried: tuple[int, bool]) -> tuple[int, str | None]:
    seed, in_clusters = tried
    return seed, next(_violations(seed, None, in_clusters=in_clusters), None)


def _score(task: tuple[str, list[int]]) -> Score:
    name, seeds = task
    for seed in seeds:
        for violation in _violations(seed, name, in_clusters=name in OF_CLUSTERS):
            return Score(name, violation.split(" ", 1)[0].rstrip(":"), seed + 1)
    return Score(name, None, len(seeds))


def _violations(seed: int, mutant: str | None, *, in_clusters: bool) -> Iterator[str]:
    applied = None if mutant is None else MUTANTS[mutant].applied()
    try:
        yield from simulate(seed, mutant=applied, brokers=None if in_clusters else 1).violations
    except Exception as error:  # noqa: BLE001 - what breaks the simulator itself has been noticed, too
        yield f"CRASH {error!r}"


if __name__ == "__main__":
    main()
