"""An environment for each version of PySpark that oncelog works with, made from PyPI once and kept in ``.work``.

``requirements/spark-<version>.txt`` locks what such an environment has of its own: PySpark and what that demands. All
else, test tools and libraries, is the development environment's, which is named in a ``.pth`` file. One process at a
time makes environments (a lock beside them); a second one waits and finds them there. An environment whose stamp names
another lock, Python or development environment is made anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.peers.supply import ROOT, WORK

HOME: Final = WORK / "spark-versions"
LOCKS: Final = ROOT / "requirements"
REPORT_EVERY_S: Final = 10.0
_UNPACKED: Final = "--config-settings=--build-option=--compression=stored"
"""PySpark is published as sources with jars in them: its wheel is unpacked at once, so nothing is gained by deflating
400 MB of jars."""

Say = Callable[[str], None]


class NotToBeHad(Exception):
    """An environment cannot be made; the message says why, in one line."""


def known_versions() -> list[str]:
    """The versions that there are locks for, oldest first."""
    removeprefixes = (path.stem.removeprefix("spark-") for path in LOCKS.glob("spark-*.txt"))
    return sorted(removeprefixes, key=lambda version: [int(part) for part in version.split(".")])


def chosen_versions(names: Sequence[str]) -> list[str]:
    """Versions by their names, or ``oldest`` and ``newest``, in the order given. Raises NotToBeHad."""
    known = known_versions()
    places = {"oldest": known[0], "newest": known[-1]}
    values = [places.get(name, name) for name in names]
    for version in values:
        release(version)
    return values


def environment(version: str, say: Say) -> Path:
    """The Python of a version's environment, which is made where it is not there yet. Raises NotToBeHad."""
    home = HOME / version
    with _alone(say):
        if not _is_complete(home, version):
            _make(home, version, say)
        _write_command(home)
    return _python(home)


@contextlib.contextmanager
def installed_wheel(say: Say) -> Iterator[Path]:
    """A directory that has the wheel of this checkout unpacked, built anew, and nothing else; it is the caller's alone,
    so that another run beside it does not take its modules away."""
    HOME.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="wheel-", dir=HOME, ignore_cleanup_errors=True) as name:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        with _alone(say):  # what is built is left in the checkout
            subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--target", name, str(ROOT)], check=True)
        yield Path(name)


def variables(python: Path, path: Path) -> dict[str, str]:
    """The environment of a process on a version's Python, with oncelog from ``path`` and Spark's workers on that
    Python."""
    environ = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "SPARK_SUBMIT_OPTS")}
    return {**environ, "PYTHONPATH": str(path), "PYSPARK_PYTHON": str(python)}


def _make(home: Path, version: str, say: Say) -> None:
    started_s = time.monotonic()
    lock = _lock(version)
    say(f"{release(version)}: fetching from PyPI and unpacking, some 450 MB")
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home, with_pip=False, symlinks=os.name == "posix")
    (_site_packages(home) / "development.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "--python", str(_python(home)), "--disable-pip-version-check", "install"]
    command += ["--quiet", "--ignore-installed", "--no-build-isolation", "--no-compile", "--no-deps", _UNPACKED]
    command += ["--require-hashes", "--requirement", str(lock)]
    with tempfile.TemporaryDirectory(dir=home) as scratch:
        _run(command, Path(scratch), home, version, say)
    _stamp_file(home).write_text(_stamp(version), encoding="ascii")
    say(f"{release(version)}: ready after {time.monotonic() - started_s:.0f} s")


def _write_command(home: Path) -> None:
    """``oncelog`` beside the environment's Python, for whichever checkout or wheel is on its path."""
    script = _python(home).with_name("oncelog")
    if not script.exists():
        script.write_text(
            f"#!{_python(home)}\nimport sys\nfrom oncelog.cli.main import run\nsys.exit(run())\n", "ascii"
        )
        script.chmod(0o755)


def _run(command: list[str], scratch: Path, home: Path, version: str, say: Say) -> None:
    """Run pip; say how much is there while it takes its time. Raises NotToBeHad with its last error."""
    started_s = time.monotonic()
    output = scratch / "pip.log"
    with output.open("wb") as log:
        pip = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "TMPDIR": str(scratch)}
        )
        try:
            while (code := _ended(pip)) is None:
                megabytes = _size(home) // 1_000_000
                say(f"{release(version)}: {time.monotonic() - started_s:.0f} s, {megabytes} MB")
        finally:
            if pip.poll() is None:
                pip.kill()
                pip.wait()
    if code:
        lines = [line.strip() for line in output.read_text("utf-8", "replace").splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines or ["pip said nothing"]
        raise NotToBeHad(f"{release(version)} could not be installed from PyPI: {errors[0].removeprefix('ERROR: ')}")


def _ended(pip: subprocess.Popen[bytes]) -> int | None:
    try:
        return pip.wait(REPORT_EVERY_S)
    except subprocess.TimeoutExpired:
        return None


def release(version: str) -> str:
    """``PySpark 4.0.5``: the release that the lock of a version names. Raises NotToBeHad without one."""
    for line in _lock(version).read_text("utf-8").splitlines():
        if line.startswith("pyspark=="):
            return f"PySpark {line.removeprefix('pyspark==').split()[0]}"
    raise NotToBeHad(f"{_lock(version).name} does not name a release of PySpark")


def _lock(version: str) -> Path:
    lock = LOCKS / f"spark-{version}.txt"
    if not lock.exists():
        raise NotToBeHad(f"no version {version!r} of Spark is known here, only {', '.join(known_versions())}")
    return lock


def _is_complete(home: Path, version: str) -> bool:
    stamp = _stamp_file(home)
    return stamp.exists() and stamp.read_text("ascii") == _stamp(version)


def _stamp_file(home: Path) -> Path:
    return home / "made-from"


def _stamp(version: str) -> str:
    parts = (sys.version, sysconfig.get_paths()["purelib"], _lock(version).read_text("utf-8"))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _python(home: Path) -> Path:
    return home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _site_packages(home: Path) -> Path:
    return Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))


def _size(directory: Path) -> int:
    sizes = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):  # pip is at work there
                sizes += os.lstat(os.path.join(folder, name)).st_size
    return sizes


@contextlib.contextmanager
def _alone(say: Say) -> Iterator[None]:
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process makes environments or a wheel: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
