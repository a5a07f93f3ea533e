"""A Spark home whose Python workers do not recompile PySpark.

PySpark from PyPI has its modules as files with byte code, and without it in ``python/lib/pyspark.zip``, which the JVM
puts first on the path of every Python process on this machine. This home links PySpark's programs and jars; directories
with the packages as files take the names of the archives. It serves this machine only: Spark sends the archives
themselves to remote executors.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

VARIABLE: Final = "SPARK_HOME"
_SHARED: Final = ("bin", "conf", "jars", "sbin")
# Compiling PySpark takes about 0.8 s of processor time in each process: one or two per source look-up, plan, task and
# streaming source.
_ARCHIVES: Final = {"pyspark": "pyspark.zip", "py4j": "py4j-*.zip"}


def create_unpacked_home(home: Path) -> bool:
    """Create the home in an empty directory. Returns False if PySpark is not installed with both archives and
    packages."""
    packages = {name: _package(name) for name in _ARCHIVES}
    installed = packages["pyspark"]
    if installed is None:
        return False
    links = {home / name: installed / name for name in _SHARED if (installed / name).is_dir()}
    for name, pattern in _ARCHIVES.items():
        archives = [*installed.glob(f"python/lib/{pattern}")]
        package = packages[name]
        if package is None or len(archives) != 1:
            return False
        links[home / "python" / "lib" / archives[0].name / name] = package
    for link, target in links.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target, target_is_directory=True)
    return True


@contextmanager
def unpacked_home(master: str | None) -> Iterator[None]:
    """Give a JVM started within the block such a home, removed when this process exits. Does nothing if the environment
    names a home, or for a remote ``master``."""
    if VARIABLE in os.environ or not (master or "").startswith("local") or os.name != "posix":
        yield
        return
    home = Path(tempfile.mkdtemp(prefix="oncelog-spark-"))
    # The JVM and its workers may use the home until this process exits.
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    if not create_unpacked_home(home):
        yield
        return
    os.environ[VARIABLE] = str(home)
    try:
        yield
    finally:
        del os.environ[VARIABLE]


def _package(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    locations = spec.submodule_search_locations if spec else None
    directory = Path(next(iter(locations))) if locations else None
    return directory if directory is not None and directory.is_dir() else None
