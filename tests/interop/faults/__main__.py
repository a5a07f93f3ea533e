"""`python -m tests.interop.faults --seed 7 --minutes 10 [--json]`: the real broker under fire, by hand.

Runs seed after seed, each for `--seconds`, until the time is up. Exit code 1 when something was found; then the
directory of that run (data, the broker's log) is kept.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.interop.faults.plan import FAULTS, Plan
from tests.interop.faults.run import Report, run

_SHOWN = 10


def main() -> int:
    """Run seeds until the time is up; 1 when something was found."""
    options = _parser().parse_args()
    names = tuple(options.faults.split(",")) if options.faults else tuple(FAULTS)
    unknown = sorted(set(names) - FAULTS.keys())
    if unknown:
        print(f"no such fault: {', '.join(unknown)}; there are {', '.join(FAULTS)}", file=sys.stderr)
        return 2
    until_s = time.monotonic() + options.minutes * 60
    seed, clean = options.seed, True
    while True:
        directory = Path(tempfile.mkdtemp(prefix=f"oncelog-faults-{seed}-"))
        plan = Plan(seed, names, longest_s=options.longest, swarm=not options.all)
        report = run(plan, directory, seconds=options.seconds, tmpfs=options.tmpfs, log=options.verbose)
        _print(report, directory, as_json=options.json)
        clean &= report.clean
        if report.clean:
            shutil.rmtree(directory, ignore_errors=True)
        seed += 1
        if time.monotonic() >= until_s:
            return 0 if clean else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first run")
    parser.add_argument("--minutes", type=float, default=0, help="go on with the next seeds for so long (default: one)")
    parser.add_argument("--seconds", type=float, default=30, help="of faults in each run (default 30)")
    parser.add_argument("--longest", type=float, default=3, help="seconds that a fault stays, at most (default 3)")
    parser.add_argument("--faults", help=f"names with commas: {','.join(FAULTS)}")
    parser.add_argument("--all", action="store_true", help="all of them in every run, not a half chosen by the seed")
    parser.add_argument("--tmpfs", action="store_true", help="data on a small tmpfs that really fills up (root)")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each run")
    parser.add_argument("--verbose", action="store_true", help="say each fault as it comes")
    return parser


def _print(report: Report, directory: Path, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report.row() | ({} if report.clean else {"kept": str(directory)})), flush=True)
        return
    ends, faults = dict(report.transactions), dict(report.faults)
    print(f"seed {report.seed}: {faults}, transactions {ends}, {report.records} records, {report.elapsed_s:.1f} s")
    for failure in report.failures:
        print(failure)
    for name, instances in report.anomalies.items():
        print(f"{name}: {len(instances)}", *instances[:_SHOWN], sep="\n  ")
    if not report.clean:
        print(f"kept: {directory}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
