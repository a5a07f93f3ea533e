"""A home for Spark in which Python workers do not compile PySpark anew.

PySpark from PyPI has its modules twice: as files with byte code beside them, and in ``python/lib/pyspark.zip``, which
has none. The JVM puts the archive first on the path of every Python process that it starts on this machine: one or two
for each kind of work, a look-up of sources, a plan, a task, a streaming source. Each compiles what it imports from
there, some 0.8 s of processor time before it has done anything. The home made here has PySpark's own programs and jars
by links; where the archives should be are directories of their names, with the same packages as files.

For sessions on this machine only: to executors elsewhere Spark sends the archives themselves.
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
_ARCHIVES: Final = {"pyspark": "pyspark.zip", "py4j": "py4j-*.zip"}


def lay_out(home: Path) -> bool:
    """Make the home in the empty directory ``home``; False, and nothing made, if PySpark is not installed with archives
    and packages."""
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
def quick_home(master: str | None) -> Iterator[None]:
    """While it lasts, a JVM that is started has such a home, which is removed with this process. Changes nothing if a
    home is named in the environment, or for a ``master`` that is not this process."""
    if VARIABLE in os.environ or not (master or "").startswith("local") or os.name != "posix":
        yield
        return
    home = Path(tempfile.mkdtemp(prefix="oncelog-spark-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    if not lay_out(home):
        yield
        return
    os.environ[VARIABLE] = str(home)
    try:
        yield
    finally:
        del os.environ[VARIABLE]


def _package(name: str) -> Path | None:
    """The directory of a package's files."""
    found = importlib.util.find_spec(name)
    places = found.submodule_search_locations if found else None
    directory = Path(next(iter(places))) if places else None
    return directory if directory is not None and directory.is_dir() else None
