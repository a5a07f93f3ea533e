"""``python -m tests.spark.versions``: Spark's tests on each version of PySpark that oncelog works with.

::

    python -m tests.spark.versions                          # all of tests/spark that PyPI is enough for, on all of them
    python -m tests.spark.versions 4.0 4.3 -- tests/spark/source -k limits
    python -m tests.spark.versions oldest newest --wheel --at-once -- tests/spark/source
    python -m tests.spark.versions --types                  # mypy --strict against each
    python -m tests.spark.versions 4.1 --make               # only the environments; prints their Pythons
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import IO, Final

from tests.peers.supply import ROOT
from tests.spark.versions.environments import (
    NotToBeHad,
    chosen_versions,
    environment,
    installed_wheel,
    known_versions,
    release,
    variables,
)

SELECTION: Final = ["-q", "-rs", "-m", "not (java or peer)", "tests/spark"]
"""Tests that are run unless others are named."""
_NEEDS: Final = {
    "4.0": ("filtering_reader", "plan.pushdown", "admission_reader", "self_limited_reader"),
    "4.1": ("admission_reader", "self_limited_reader"),
}
"""Modules of ``oncelog.spark.source`` that mypy leaves out: they are about what a version lacks, or check against the
locked one what differs there."""


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
    if arguments.types:
        codes = {version: _check_types(version, python) for version, python in pythons.items()}
    else:
        with installed_wheel(_say) if arguments.wheel else contextlib.nullcontext(ROOT / "src") as path:
            if not of_pytest:
                for python in pythons.values():  # JVMs by the dozen: an archive of their classes is worth its making
                    _started([str(python), "-m", "tests.spark.jvms"], python, path).wait()
            codes = _run_tests(pythons, path, of_pytest or SELECTION, at_once=arguments.at_once)
    for version, code in codes.items():
        _say(f"{release(version)}: {'FAILED' if code else 'passed'}")
    return 1 if any(codes.values()) else 0


def _arguments() -> tuple[argparse.Namespace, list[str]]:
    """Those for here, and those behind ``--`` for pytest."""
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    parser = argparse.ArgumentParser(prog="python -m tests.spark.versions", description=(__doc__ or "").split("\n")[0])
    known = ", ".join(known_versions())
    parser.add_argument("versions", nargs="*", help=f"of {known}, or oldest, newest; all of them if none is named")
    parser.add_argument("--wheel", action="store_true", help="run with the wheel of this checkout, built anew")
    parser.add_argument("--at-once", action="store_true", help="all versions at the same time; their output comes last")
    parser.add_argument(
        "--types", action="store_true", help="check types against each version instead of running tests"
    )
    parser.add_argument("--make", action="store_true", help="only make the environments, and print their Pythons")
    return parser.parse_args(given[:cut]), given[cut + 1 :]


def _run_tests(pythons: dict[str, Path], path: Path, of_pytest: list[str], *, at_once: bool) -> dict[str, int]:
    """pytest's exit code on each version."""
    codes, running = {}, {}
    for version, python in pythons.items():
        command = [str(python), "-m", "pytest", *of_pytest]
        _say(f"{release(version)}: {' '.join(command[1:])}")
        if at_once:
            output = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it has been shown
            running[version] = (_started(command, python, path, output), output)
        else:
            codes[version] = _started(command, python, path).wait()
    for version, (process, output) in running.items():
        codes[version] = process.wait()
        with output:
            output.seek(0)
            _say(f"{release(version)}:\n{output.read().decode('utf-8', 'replace')}")
    return codes


def _started(command: list[str], python: Path, path: Path, output: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """A process in the checkout, with oncelog from ``path`` and Spark's workers on the same Python."""
    return subprocess.Popen(command, cwd=ROOT, env=variables(python, path), stdout=output, stderr=output)


def _check_types(version: str, python: Path) -> int:
    """mypy's exit code: strict, but for modules about what the version lacks, and for comments that only other versions
    need."""
    left_out = [f"oncelog.spark.source.{name}" for name in _NEEDS.get(version, ())]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["mypy"]
    lines = ["[mypy]", "strict = True", "mypy_path = src", "packages = " + ", ".join(settings["packages"])]
    lines += [f"python_version = {settings['python_version']}", "warn_unused_ignores = False"]
    for override in settings["overrides"]:
        lines += [f"[mypy-{name}]\nignore_missing_imports = True" for name in override["module"]]
    lines += [f"[mypy-{name}]\nignore_errors = True" for name in left_out]
    if left_out:
        lines += ["[mypy-oncelog.spark.session.versions]\nignore_errors = True"]
        lines += ["[mypy-oncelog.spark.sink.data_writer]\ndisallow_subclassing_any = False"]
    with tempfile.NamedTemporaryFile("w", suffix=".ini", encoding="utf-8") as config:
        config.write("\n".join(lines) + "\n")
        config.flush()
        command = [sys.executable, "-m", "mypy", "--no-error-summary", "--config-file", config.name]
        command += ["--python-executable", str(python), "--cache-dir", str(ROOT / ".mypy_cache" / f"spark-{version}")]
        return subprocess.run(command, cwd=ROOT, check=False).returncode


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
