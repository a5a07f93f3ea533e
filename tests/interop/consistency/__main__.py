"""`python -m tests.interop.consistency --client oncelog --groups --seed 7`: a long transactional copy under fire."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.interop.consistency.copier import CLIENTS
from tests.interop.consistency.copying import Plan, run

_SHOWN = 10


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", choices=CLIENTS, default="confluent", help="of the copiers (default confluent)")
    parser.add_argument("--groups", action="store_true", help="copiers subscribe as one group; else one a partition")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--sources", type=int, default=4, help="partitions of the source, and copiers (default 4)")
    parser.add_argument("--shortest", type=float, default=0.2, help="seconds between two faults, at least")
    parser.add_argument("--longest", type=float, default=1.5, help="seconds between two faults, at most")
    parser.add_argument("--timeout", type=float, default=600, help="seconds without progress until it ends")
    parser.add_argument("--directory", type=Path, help="an empty one, which is kept")
    return parser.parse_args()


def main() -> int:
    """1 when an anomaly was found; then the directory is kept."""
    options = _options()
    plan = Plan(
        options.seed,
        options.events,
        options.client,
        options.groups,
        options.sources,
        (options.shortest, options.longest),
        stuck_s=options.timeout,
    )
    directory = options.directory or Path(tempfile.mkdtemp(prefix="oncelog-consistency-"))
    directory.mkdir(exist_ok=True)
    try:
        outcomes = run(plan, directory)
    except TimeoutError as failure:
        print(f"seed {plan.seed}: {failure}\nkept: {directory}")
        return 1
    print(f"{plan.client}, {'one group' if plan.groups else 'assigned'}, seed {plan.seed}: {outcomes.summary()}")
    print(*outcomes.failures, sep="\n", end="\n" if outcomes.failures else "")
    for name, instances in outcomes.anomalies.items():
        print(f"{name}: {len(instances)}", *instances[:_SHOWN], sep="\n  ")
    if outcomes.anomalies or outcomes.failures:
        print(f"kept: {directory}")
        return 1
    if options.directory is None:
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
