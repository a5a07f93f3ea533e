"""`python -m tests.cluster --seed 7 --minutes 10`: real clusters under fire, by hand.

Runs seed after seed, each for `--seconds` of faults, until the time is up. A seed chooses the tree (SQLite, ZooKeeper),
the client of the transactional copy, and the schedule. Exit code 1 when something was found; then the directory of that
run (data, the brokers' logs, the copiers' journals) is kept.

Pauses: `python -m tests.cluster --no-copy --no-proxies --faults kill --seconds 60` prints the longest time without an
acknowledgement for each kind of fault.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tests.cluster.run import COPIES, Report, draw_plan, run
from tests.cluster.schedule import FAULTS


def main() -> int:
    """Run seeds until the time is up; 1 when something was found."""
    for number in (signal.SIGINT, signal.SIGTERM):  # in the background too: no broker outlives this
        signal.signal(number, signal.default_int_handler)
    options = _parser().parse_args()
    names = tuple(options.faults.split(",")) if options.faults else ()
    unknown = sorted(set(names) - FAULTS.keys())
    if unknown:
        print(f"no such fault: {', '.join(unknown)}; there are {', '.join(FAULTS)}", file=sys.stderr)
        return 2
    until_s = time.monotonic() + options.minutes * 60
    seed, clean = options.seed, True
    while True:
        plan = replace(draw_plan(seed, options.seconds), names=names, proxied=options.proxies, verbose=options.verbose)
        if options.tree:
            plan = replace(plan, on_zookeeper=options.tree == "zookeeper")
        if options.client:
            plan = replace(plan, copy=next(copy for copy in COPIES if _name(copy) == options.client))
        if not options.copy:
            plan = replace(plan, copy=None)
        tree, copy = "ZooKeeper" if plan.on_zookeeper else "SQLite", _name(plan.copy) if plan.copy else "no copy"
        print(f"seed {seed}: {tree}, {copy}", flush=True)
        directory = Path(tempfile.mkdtemp(prefix=f"oncelog-cluster-{seed}-"))
        report = run(plan, directory)
        _print(report, directory)
        if report.broken:
            clean = False
        else:
            shutil.rmtree(directory, ignore_errors=True)
        seed += 1
        if time.monotonic() >= until_s:
            return 0 if clean else 1


def _name(copy: tuple[str, bool]) -> str:
    return f"{copy[0]}-group" if copy[1] else copy[0]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first run")
    parser.add_argument("--minutes", type=float, default=0, help="go on with the next seeds for so long (default: one)")
    parser.add_argument("--seconds", type=float, default=60, help="of faults in each run (default 60)")
    parser.add_argument("--faults", help=f"names with commas: {','.join(FAULTS)}")
    parser.add_argument("--tree", choices=("sqlite", "zookeeper"), help="instead of the seed's choice")
    parser.add_argument("--client", choices=[_name(copy) for copy in COPIES], help="instead of the seed's choice")
    parser.add_argument("--no-copy", dest="copy", action="store_false", help="idempotent load only")
    parser.add_argument("--no-proxies", dest="proxies", action="store_false", help="brokers at their own addresses")
    parser.add_argument("--verbose", action="store_true", help="say each fault as it comes")
    return parser


def _print(report: Report, directory: Path) -> None:
    gaps = ", ".join(f"{gap:.2f}" for gap in report.longest_gaps)
    print(f"  {report.acknowledged} records acknowledged; longest gap of each partition: {gaps} s")
    print(*report.gaps(), sep="\n")
    if report.copied:
        print(f"  copy: {report.copied}")
    for line in report.broken:
        print(f"BROKEN: {line}")
    if report.broken:
        print(f"kept: {directory}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
