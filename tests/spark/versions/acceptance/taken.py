"""Steps on the PySpark of this Python, a line each: ``python -m tests.spark.versions.acceptance.taken classic``.

Started by ``python -m tests.spark.versions.acceptance`` with a wheel of the checkout on its path.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Final

from tests.spark.versions.acceptance.steps import STEPS, Step
from tests.spark.versions.acceptance.user import CLASSIC, CONNECT, User, cluster, session

OK: Final = "ok"
FAILED: Final = "failed"
NOT_APPLICABLE: Final = "not applicable"


def main() -> int:
    """The exit code: 0 if no step failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.versions.acceptance.taken")
    parser.add_argument("kind", choices=(CLASSIC, CONNECT))
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--wheel", type=Path, required=True, help="where oncelog has to come from")
    parser.add_argument("--only", nargs="*", choices=STEPS, default=[*STEPS])
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    import pyspark

    import oncelog

    if not Path(oncelog.__file__).is_relative_to(args.wheel):
        print(f"oncelog comes from {oncelog.__file__}, not from the wheel", file=sys.stderr)
        return 1
    failed = 0
    with (
        tempfile.TemporaryDirectory(prefix="oncelog-acceptance-", ignore_cleanup_errors=True) as name,
        cluster(args.brokers, Path(name)) as servers,
        session(args.kind, Path(name)) as (spark, remote),
    ):
        user = User(pyspark.__version__, args.kind, servers, Path(name), spark, remote)
        for step in args.only:
            started_s = time.monotonic()
            result, why = _taken(STEPS[step], user)
            failed += result == FAILED
            seconds = round(time.monotonic() - started_s, 1)
            line = {"spark": user.release, "kind": user.kind, "step": step, "result": result, "seconds": seconds}
            print(json.dumps({**line, "why": why}) if args.json else _text(line, why), flush=True)
        user.close()
    return 1 if failed else 0


def _taken(step: Step, user: User) -> tuple[str, str]:
    """The result of a step, and why; all that is known of a failure goes to standard error."""
    reason = step.why_not(user)
    if reason is not None:
        return NOT_APPLICABLE, reason
    try:
        step.take(user)
    except Exception as error:  # noqa: BLE001 - whatever it is, the next step is taken
        traceback.print_exc()
        return FAILED, (str(error).strip() or repr(error)).splitlines()[0]
    return OK, ""


def _text(line: dict[str, object], why: str) -> str:
    text = "{spark} {kind:7}  {step:27}  {result:6}  {seconds:6.1f} s".format(**line)  # type: ignore[str-format]
    return f"{text}  {why}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
