"""Whole drivers under fire: ``python -m tests.spark.sink --seeds 20``.

A process with its own Spark copies a topic; it and its JVM are killed (``kill -9``) after a time drawn by seed, or at a
point drawn by seed, again and again, and started again until it comes to its end. Then the topics' values are compared.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from oncelog.spark.sink.fault_points import NAMES
from oncelog.testing import Broker
from tests.spark.sink.queries import TWO_PHASE, Copy, committed_values, make_input

STARTS_IN_S = 6.0
LIVES = 25


def copy(arguments: list[str]) -> int:
    """The process that is killed: one life of the query."""
    from oncelog.spark.session.local_session import local_session

    servers, source, sink, directory, mode = arguments
    with local_session(master="local[2]", log=Path(directory) / "spark.log") as spark:
        query = Copy(spark, servers, source, sink, Path(directory))
        query.options["exactlyOnce"] = mode
        while query.run() is None:
            if query.is_at_the_end:
                return 0
        return 1


def one_seed(broker: Broker, seed: int, mode: str) -> None:
    """One topic, copied over several lives."""
    entropy = random.Random(seed)
    source, sink = f"in-{mode}-{seed}", f"out-{mode}-{seed}"
    values = make_input(broker.bootstrap_servers, source, 400, partitions=entropy.randint(1, 4))
    points = [name for name in NAMES if name.startswith("ledger") == (mode == "ledger")]
    with tempfile.TemporaryDirectory(prefix="oncelog-sink-") as directory:
        for life in range(LIVES):
            if life < 6 and entropy.random() < 0.5:
                (Path(directory) / "points").mkdir(exist_ok=True)
                (Path(directory) / "points" / entropy.choice(points)).touch()
            command = [sys.executable, "-m", "tests.spark.sink", "--copy", broker.bootstrap_servers, source, sink]
            with subprocess.Popen([*command, directory, mode], start_new_session=True) as process:
                try:
                    patience = STARTS_IN_S + entropy.uniform(0, 12) if life < 6 else 120.0
                    code = process.wait(patience)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    code = None
            if life < 6 and entropy.random() < 0.2:
                broker.kill()
                broker.start()
            if code == 0:
                break
        result = committed_values(broker.bootstrap_servers, sink)
        verdict = (
            "each row once"
            if result == values
            else f"{len(result)} rows, {len(set(result))} different, of {len(values)}"
        )
        print(f"seed {seed}, {mode}: {life + 1} lives: {verdict}", flush=True)
        assert result == values


def main() -> int:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copy", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--mode", choices=("2pc", "ledger"), default="2pc")
    args = parser.parse_args()
    if args.copy:
        return copy(args.copy)
    with Broker(TWO_PHASE) as broker:
        for seed in range(args.first, args.first + args.seeds):
            one_seed(broker, seed, args.mode)
    return 0


if __name__ == "__main__":
    sys.exit(main())
