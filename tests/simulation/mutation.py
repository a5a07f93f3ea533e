"""The mutation score: each planted bug over seeds 0, 1, 2 … until one falls that is clean without it.

``python -m tests.simulation.mutation [NAME …] [--seeds 50] [--workers 2] [--length 100]`` prints the rows of the table
in docs/internals/simulation.md; bugs that need several brokers are looked for in clusters. It takes minutes; one run of
the simulator that is not clean without a plant is said too. ``--length``: seconds of faults in a seed; a shorter one
draws other faults.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Iterator
from typing import NamedTuple

from oncelog.sim.mutants import MUTANTS, OF_CLUSTERS
from oncelog.sim.simulation import SAFETY_S, simulate


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
    parser.add_argument("--length", type=int, default=SAFETY_S)
    options = parser.parse_args()
    names = options.names or list(MUTANTS)
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        clean: dict[bool, list[int]] = {}
        for in_clusters in sorted({name in OF_CLUSTERS for name in names}):
            clean[in_clusters] = []
            tried = [(seed, in_clusters, options.length) for seed in range(options.seeds)]
            for seed, violation in pool.imap(_clean, tried, chunksize=1):
                if violation is None:
                    clean[in_clusters].append(seed)
                else:
                    where = "in a cluster " if in_clusters else ""
                    print(f"seed {seed} is not clean {where}without a plant: {violation}", flush=True)
        tasks = [(name, clean[name in OF_CLUSTERS], options.length) for name in names]
        caught = 0
        for score in pool.imap(_score, tasks, chunksize=1):
            caught += score.rule is not None
            print(
                f"| `{score.name}` | {MUTANTS[score.name].what} | {score.rule or '**none**'} | {score.seeds} |",
                flush=True,
            )
    print(f"{caught} of {len(names)} planted bugs fell within {options.seeds} seeds")


def _clean(tried: tuple[int, bool, int]) -> tuple[int, str | None]:
    seed, in_clusters, length_s = tried
    return seed, next(_violations(seed, None, length_s, in_clusters=in_clusters), None)


def _score(task: tuple[str, list[int], int]) -> Score:
    name, seeds, length_s = task
    for seed in seeds:
        for violation in _violations(seed, name, length_s, in_clusters=name in OF_CLUSTERS):
            return Score(name, violation.split(" ", 1)[0].rstrip(":"), seed + 1)
    return Score(name, None, len(seeds))


def _violations(seed: int, mutant: str | None, length_s: int, *, in_clusters: bool) -> Iterator[str]:
    applied = None if mutant is None else MUTANTS[mutant].applied()
    try:
        brokers = None if in_clusters else 1
        yield from simulate(seed, mutant=applied, safety_s=length_s, brokers=brokers).violations
    except Exception as error:  # noqa: BLE001 - what breaks the simulator itself has been noticed, too
        yield f"CRASH {error!r}"


if __name__ == "__main__":
    main()
