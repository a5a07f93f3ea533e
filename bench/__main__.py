"""`python -m bench NAME…`: run benchmarks, print ratios, keep the figures under `.work/bench/`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from tests.peers import jars
from tests.peers.supply import PeerMissing

from bench.benchmarks import BENCHMARKS, WITHOUT_KAFKA
from bench.options import Options
from bench.peers import FLOOR, KAFKA, ONCELOG, ONCELOG_SYNCED, ONCELOG_ZOOKEEPER, Peer, checkout

_PEERS = {
    "oncelog": ONCELOG,
    "oncelog-synced": ONCELOG_SYNCED,
    "oncelog-zookeeper": ONCELOG_ZOOKEEPER,
    "kafka": KAFKA,
    "floor": FLOOR,
}


def _peer(text: str) -> Peer:
    """The side that the command line names: one of ours, or where another checkout lies."""
    if text in _PEERS:
        return _PEERS[text]
    try:
        return checkout(Path(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; the other sides are {', '.join(_PEERS)}") from None


def _parser() -> argparse.ArgumentParser:
    lines = "\n".join(f"  {name:24} {(run.__doc__ or '').strip()}" for name, run in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="oncelog and Apache Kafka 4.3.1 in turn, with the same clients, as ratios.",
        epilog=f"benchmarks:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "name", nargs="+", choices=[*BENCHMARKS, "all"], metavar="NAME", help="one of those below, or all"
    )
    parser.add_argument("--repeat", type=int, default=5, help="pairs of measurements (default 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="of record and partition counts (default 1)")
    parser.add_argument(
        "--ours",
        type=_peer,
        default="oncelog",
        metavar="SIDE",
        help=f"left side: {', '.join(_PEERS)}, or the directory of another checkout (default oncelog, page cache)",
    )
    parser.add_argument(
        "--theirs", type=_peer, default="kafka", metavar="SIDE", help="right side, as --ours (default kafka)"
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="WORDS",
        help="cases of spark-source and arrow, as in 100b,6p,lz4,noop; of cluster-failover: kill,shutdown,freeze,own",
    )
    parser.add_argument(
        "--spark",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark's, for spark-source's sides",
    )
    return parser


def _end(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


def main() -> int:
    """Run what is asked for."""
    # An installation has byte code; without it each start and each first request would compile its modules.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    signal.signal(signal.SIGTERM, _end)  # as an exception: every `with` that has started a broker ends it
    args = _parser().parse_args()
    only = tuple(word for word in args.only.lower().split(",") if word)
    options = Options(args.repeat, args.scale, args.ours, args.theirs, only, tuple(args.spark))
    names = list(BENCHMARKS) if "all" in args.name else args.name
    try:
        if not WITHOUT_KAFKA.issuperset(names):
            jars.KAFKA.home()
    except PeerMissing as missing:
        print(f"bench: {missing}", file=sys.stderr)
        return 1
    comparisons = []
    for name in names:
        comparison = BENCHMARKS[name](options)
        comparison.print()
        comparison.save("-".join((name, *only)))
        comparisons.append(comparison)
    if len(comparisons) > 1:
        print("\n## All of it")
        for comparison in comparisons:
            comparison.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
