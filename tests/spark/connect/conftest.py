"""One server of Spark Connect, a process of its own from PySpark's jars, for all tests here that a process runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.spark.connect.server import connect_server
from tests.unit.spark.targets.conftest import lake, rest, store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["lake", "rest", "store"]

CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
_HIDING: Final = """
import pathlib, sys

class Hiding:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in ("oncelog", "deltalake") and pathlib.Path(__file__).with_name(f"no-{top}").exists():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hiding())
"""
"""For the server's Python processes: a package is not installed while there is a file ``no-<package>``."""


@pytest.fixture(scope="session")
def server_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that the server's Python processes look into first."""
    directory = tmp_path_factory.mktemp("python")
    (directory / "sitecustomize.py").write_text(_HIDING)
    return directory


@pytest.fixture
def without_oncelog(server_python: Path) -> Iterator[Path]:
    """A file: while it is there, the server's Python has no oncelog."""
    hidden = server_python / "no-oncelog"
    yield hidden
    hidden.unlink(missing_ok=True)


@pytest.fixture
def without_deltalake(server_python: Path) -> Iterator[None]:
    """Meanwhile the server's Python has no deltalake."""
    hidden = server_python / "no-deltalake"
    hidden.touch()
    yield
    hidden.unlink()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, server_python: Path) -> Iterator[str]:
    """The address of a running server, ``sc://host:port``."""
    path = os.pathsep.join([str(server_python), os.environ.get("PYTHONPATH", "")])
    with connect_server(tmp_path_factory.mktemp("connect"), path) as address:
        yield address


@pytest.fixture(autouse=True)
def _connect_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark's functions make expressions for servers, as in a process that has a session of Connect only."""
    monkeypatch.setenv(CONNECT_MODE, "1")


@pytest.fixture
def connect(server: str) -> Iterator[SparkSession]:
    """A session of its own on the server; queries are started until their Python processes were there in time."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    from tests.spark.connect.starting import patient_starts

    session = ConnectSession.builder.remote(server).create()
    with patient_starts():
        yield session  # type: ignore[misc]  # the two kinds of sessions have no common type that says so
    session.stop()
