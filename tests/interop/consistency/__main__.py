"""`python -m tests.interop.consistency --seed 7 --events 100000`: a long transactional copy under fire, by hand."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.interop.consistency.copying import Plan, run

_SHOWN = 10


def main() -> int:
    """1 when an anomaly was found; then the directory is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--sources", type=int, default=4, help="partitions of the source, one copier each (default 4)")
    parser.add_argument("--shortest", type=float, default=0.2, help="seconds between two kills, at least")
    parser.add_argument("--longest", type=float, default=1.5, help="seconds between two kills, at most")
    parser.add_argument("--broker-share", type=float, default=0.5, help="of kills that hit the broker")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds after which it is given up")
    options = parser.parse_args()
    plan = Plan(
        options.seed,
        options.events,
        options.sources,
        (options.shortest, options.longest),
        options.broker_share,
        options.timeout,
    )
    directory = Path(tempfile.mkdtemp(prefix="oncelog-consistency-"))
    outcomes = run(plan, directory)
    print(f"seed {plan.seed}: {outcomes.summary()}")
    for failure in outcomes.failures:
        print(failure)
    for name, instances in outcomes.anomalies.items():
        print(f"{name}: {len(instances)}", *instances[:_SHOWN], sep="\n  ")
    if outcomes.anomalies or outcomes.failures:
        print(f"kept: {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
