"""How drills end brokers and bring them back, and what their commands have in common."""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.cluster.brokers import SESSION_MS, Cluster

KINDS: Final = ("kill", "stop", "freeze")
_FROZEN_S: Final = 1.5 * SESSION_MS / 1000


def draw_away_s(chance: random.Random, kind: str, choices: Sequence[float]) -> float:
    """How long a broker is away: one of ``choices``, and when frozen so much longer than until its session ends."""
    away_s = chance.choice(choices)
    return _FROZEN_S + away_s if kind == "freeze" else away_s


def strike(
    cluster: Cluster, kind: str, brokers: Sequence[int], away_s: float, struck: Callable[[], object] = lambda: None
) -> None:
    """End the brokers, or freeze them, call ``struck``, and bring them back. A stop counts as begun, not as done.

    Raises RuntimeError if one that was stopped has not ended cleanly."""
    if kind == "freeze":
        for broker_id in brokers:
            cluster.freeze(broker_id)
    elif kind == "kill":
        cluster.kill(brokers)
    struck()
    if kind == "stop":
        for broker_id in brokers:
            if code := cluster.stop(broker_id):
                raise RuntimeError(f"exit code {code} of broker {broker_id}:\n{cluster.log(broker_id)[-2000:]}")
    time.sleep(away_s)
    if kind == "freeze":
        for broker_id in brokers:
            cluster.thaw(broker_id)
    else:
        cluster.start(brokers)


def drilled(name: str, seed: int, run: Callable[[Path], list[str]]) -> int:
    """Run a drill in an empty directory, which is kept if anything is wrong, and print that and how to run it again;
    the exit code."""
    print(f"seed {seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix=f"oncelog-{name}-{seed}-"))
    wrong = run(directory)
    for line in wrong:
        print(f"BROKEN: {line}")
    if wrong:
        given = " ".join(sys.argv[1:])
        print(f"kept: {directory}")
        print(f"again: python -m tests.cluster.{name} {given if '--seed' in given else f'--seed {seed} {given}'}")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return 0
