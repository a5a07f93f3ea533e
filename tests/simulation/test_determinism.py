"""The same seed gives the same run, byte for byte, in any process; another seed another one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.waiting import HANG_S

pytestmark = pytest.mark.slow

_RUN = """
from oncelog.sim.simulation import simulate
for seed in (1, 2):
    outcome = simulate(seed, safety_s=10)
    print(outcome.trace_sha256, outcome.events, outcome.requests, outcome.violations)
"""


def run(hash_seed: str) -> str:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", _RUN],
        env={"PYTHONHASHSEED": hash_seed, "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_S,
    ).stdout


def test_the_hash_seed_of_the_process_does_not_matter() -> None:
    first = run("1")
    assert first == run("4242")
    assert len(set(first.splitlines())) == 2
