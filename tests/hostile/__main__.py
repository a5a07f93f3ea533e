"""``python -m tests.hostile --seconds 60 --target requests``: fuzz longer, and keep what finds something."""

from __future__ import annotations

import argparse

from tests.hostile.dearest import all_costs, table
from tests.hostile.engine import Fuzzer, keep
from tests.hostile.targets import TARGETS


def main() -> int:
    """Fuzz; exit code 1 when something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--target", choices=TARGETS, action="append", help="only this one; may be repeated")
    parser.add_argument("--seconds", type=float, default=10, help="for each target (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--dearest", nargs="*", metavar="API", help="measure the largest requests of these APIs (none named: of all)"
    )
    arguments = parser.parse_args()
    if arguments.dearest is not None:
        for line in table(all_costs(arguments.dearest)):
            print(line, flush=True)
        return 0
    result = False
    for name in arguments.target or TARGETS:
        outcome = Fuzzer(TARGETS[name], arguments.seed).run(seconds=arguments.seconds)
        print(
            f"{name}: seed {arguments.seed}, {outcome.executions} executions, {outcome.refused} refused, "
            f"{outcome.ways} ways, {outcome.kept} inputs kept, worst {outcome.worst_ms:.0f} ms, "
            f"{outcome.worst_memory / 1024:.0f} KiB, {len(outcome.findings)} findings",
            flush=True,
        )
        for text, data in outcome.findings.items():
            result = True
            print(f"  {text}: {keep(name, data)} ({len(data)} bytes)")
    return int(result)


if __name__ == "__main__":
    raise SystemExit(main())
