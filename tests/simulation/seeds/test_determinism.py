"""The same seed gives the same run, byte for byte, in any process and after other runs; another seed another one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.waiting import HANG_S

pytestmark = pytest.mark.slow

_RUN = """
import sys
from oncelog.sim.seeds.simulation import simulate
for brokers in map(int, sys.argv[1:]):
    outcome = simulate(seed=brokers, safety_s=5, brokers=brokers)
    print(brokers, outcome.trace_sha256, outcome.events, outcome.requests, outcome.violations)
"""


def run(hash_seed: str, *brokers: str) -> dict[str, str]:
    """The output of runs: the number of brokers → the rest of the line."""
    printed = subprocess.run(
        [sys.executable, "-W", "error", "-c", _RUN, *brokers],
        env={"PYTHONHASHSEED": hash_seed, "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_S,
    ).stdout
    return {line.split()[0]: line for line in printed.splitlines()}


def test_neither_the_hash_seed_of_a_process_matters_nor_what_ran_in_it_before() -> None:
    first = run("1", "1", "3")
    assert first == run("4242", "3", "1")
    assert len({line.split()[1] for line in first.values()}) == 2
