"""``python -m tests.spark.versions``: Spark's tests on each version of PySpark that oncelog works with.

::

    python -m tests.spark.versions                          # all of tests/spark that PyPI is enough for, on all of them
    python -m tests.spark.versions 4.0 4.3 -- tests/spark/source -k limits
    python -m tests.spark.versions oldest newest --wheel    # with the wheel of this checkout instead of its sources
    python -m tests.spark.versions --types                  # mypy --strict against each
    python -m tests.spark.versions 4.1 --make               # only the environments; prints their Pythons
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.peers.supply import ROOT
from tests.spark.versions.environments import HOME, NotToBeHad, chosen_versions, environment, known_versions, release

SELECTION: Final = ["-q", "-m", "not (java or peer)", "tests/spark"]
"""What is run unless something else is said."""
_WHEEL: Final = HOME / "wheel"


def main() -> int:
    """The exit code: 0 if every version passed."""
    arguments, of_pytest = _arguments()
    try:
        versions = list(dict.fromkeys(chosen_versions(arguments.versions) or known_versions()))
        pythons = {version: environment(version, _say) for version in versions}
    except NotToBeHad as reason:
        print(f"oncelog: {reason}", file=sys.stderr)
        return 1
    if arguments.make:
        for python in pythons.values():
            print(python)
        return 0
    path = _installed_wheel() if arguments.wheel else ROOT / "src"
    failed = []
    for version, python in pythons.items():
        command = _mypy(python) if arguments.types else [str(python), "-m", "pytest", *(of_pytest or SELECTION)]
        _say(f"{release(version)}: {' '.join(command[1:])}")
        if not arguments.types:
            _run([str(python), "-m", "tests.spark.jvms"], python, path)
        if _run(command, python, path):
            failed.append(version)
    for version in versions:
        _say(f"{release(version)}: {'FAILED' if version in failed else 'passed'}")
    return 1 if failed else 0


def _arguments() -> tuple[argparse.Namespace, list[str]]:
    """Those for here, and those behind ``--`` for pytest."""
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    parser = argparse.ArgumentParser(prog="python -m tests.spark.versions", description=(__doc__ or "").split("\n")[0])
    known = ", ".join(known_versions())
    parser.add_argument("versions", nargs="*", help=f"of {known}, or oldest, newest; all of them if none is named")
    parser.add_argument("--wheel", action="store_true", help="run with the wheel of this checkout, built anew")
    parser.add_argument(
        "--types", action="store_true", help="check types against each version instead of running tests"
    )
    parser.add_argument("--make", action="store_true", help="only make the environments, and print their Pythons")
    return parser.parse_args(given[:cut]), given[cut + 1 :]


def _mypy(python: Path) -> list[str]:
    return [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--python-executable", str(python)]


def _installed_wheel() -> Path:
    """A directory that has the wheel of this checkout unpacked, and nothing else."""
    shutil.rmtree(_WHEEL, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--target", str(_WHEEL), str(ROOT)], check=True)
    return _WHEEL


def _run(command: list[str], python: Path, path: Path) -> int:
    """Run in the checkout, with oncelog from ``path`` and Spark's workers on the same Python."""
    environ = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "SPARK_SUBMIT_OPTS")}
    environ |= {"PYTHONPATH": str(path), "PYSPARK_PYTHON": str(python)}
    return subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
