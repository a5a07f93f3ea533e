"""``python -m tests.spark.versions.acceptance``: what a user does with oncelog, on each PySpark, a line for each step.

A wheel of the checkout is installed beside each PySpark from PyPI; its ``oncelog serve`` is the broker. By public means
alone, the examples of the documentation among them, topics are read and written, loaded into tables and exported, in
batches and in streams that are killed, and a pipeline is run three times; each row has to be there once.

::

    python -m tests.spark.versions.acceptance                    # all steps on all versions, classic and over Connect
    python -m tests.spark.versions.acceptance 4.0 newest --connect
    python -m tests.spark.versions.acceptance 4.2 --classic --only batch pipeline --brokers 3 --json
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.peers.supply import ROOT
from tests.spark.versions.acceptance.steps import STEPS
from tests.spark.versions.acceptance.user import CLASSIC, CONNECT
from tests.spark.versions.environments import (
    HOME,
    NotToBeHad,
    chosen_versions,
    environment,
    installed_wheel,
    known_versions,
    release,
    variables,
)


def main() -> int:
    """The exit code: 0 if no step failed."""
    arguments = _arguments()
    try:
        versions = list(dict.fromkeys(chosen_versions(arguments.versions) or known_versions()))
        pythons = {version: environment(version, _report) for version in versions}
    except NotToBeHad as reason:
        _report(str(reason))
        return 1
    with installed_wheel(_report) as wheel:
        failed = _failed(pythons, wheel, arguments)
    for item in failed:
        _report(f"failed: {item}")
    return 1 if failed else 0


def _failed(pythons: Mapping[str, Path], wheel: Path, namespace: argparse.Namespace) -> list[str]:
    """Take the steps on each version; those of which one failed, and where to look."""
    failed = []
    for version, python in pythons.items():
        # JVMs by the dozen: an archive of their classes is worth its making
        subprocess.run([str(python), "-m", "tests.spark.jvms"], cwd=ROOT, env=variables(python, wheel), check=True)
        for kind in namespace.kinds or (CLASSIC, CONNECT):
            log = HOME / f"acceptance-{version}-{kind}.log"
            if _take(kind, python, wheel, log, namespace):
                failed.append(f"{release(version)}, {kind}: see {log.relative_to(ROOT)}")
    return failed


def _take(kind: str, python: Path, wheel: Path, log: Path, namespace: argparse.Namespace) -> int:
    """The exit code of the steps on one version; what Spark says meanwhile is in the log."""
    command = [str(python), "-m", "tests.spark.versions.acceptance.taken", kind, "--wheel", str(wheel)]
    command += ["--brokers", str(namespace.brokers), "--only", *namespace.only]
    command += ["--json"] if namespace.json else []
    with log.open("wb") as errors:
        return subprocess.run(command, cwd=ROOT, env=variables(python, wheel), stderr=errors, check=False).returncode


def _arguments() -> argparse.Namespace:
    description, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m tests.spark.versions.acceptance",
        description=description,
        epilog=f"{rest}\nsteps: {', '.join(STEPS)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = ", ".join(known_versions())
    parser.add_argument("versions", nargs="*", help=f"of {known}, or oldest, newest; all of them if none is named")
    for kind in (CLASSIC, CONNECT):
        parser.add_argument(f"--{kind}", dest="kinds", action="append_const", const=kind, help=f"only {kind}")
    parser.add_argument("--only", nargs="+", choices=STEPS, default=[*STEPS], metavar="STEP", help="these steps only")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="three: oncelog cluster up")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each step")
    return parser.parse_args()


def _report(line: str) -> None:
    print(f"oncelog: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
