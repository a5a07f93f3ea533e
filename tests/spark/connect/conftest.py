"""One server of Spark Connect, a process of its own from PySpark's jars, for all tests here that a process runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.spark.jvms import class_path, java_options, spark_home
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
_STARTED = re.compile(r"Spark Connect server started at: (\S+:\d+)")
_OPENED = ("java.nio", "sun.nio.ch", "java.util", "java.lang")
_SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}


_HIDING: Final = """
import pathlib, sys

class Hiding:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "oncelog" and pathlib.Path(__file__).with_name("hidden").exists():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hiding())
"""
"""For the server's Python processes: oncelog is not installed while there is a file ``hidden``."""


@pytest.fixture(scope="session")
def server_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that the server's Python processes look into first."""
    directory = tmp_path_factory.mktemp("python")
    (directory / "sitecustomize.py").write_text(_HIDING)
    return directory


@pytest.fixture
def without_oncelog(server_python: Path) -> Iterator[Path]:
    """A file: while it is there, the server's Python has no oncelog."""
    hidden = server_python / "hidden"
    yield hidden
    hidden.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, server_python: Path) -> Iterator[str]:
    """The address of a running server, ``sc://host:port``."""
    directory = tmp_path_factory.mktemp("connect")
    opened = [f"--add-opens=java.base/{one}=ALL-UNNAMED" for one in _OPENED]
    command = ["java", *opened, "-Dio.netty.tryReflectionSetAccessible=true", *java_options(), "-Xmx1g"]
    command += ["-cp", class_path(), "org.apache.spark.deploy.SparkSubmit", "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for name, value in _SETTINGS.items():
        command += ["--conf", f"{name}={value}"]
    environment = {**os.environ, "SPARK_HOME": str(spark_home()), "PYSPARK_PYTHON": sys.executable}
    path = os.pathsep.join([str(server_python), os.environ.get("PYTHONPATH", "")])
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": path}
    log = directory / "server.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [*command, "spark-internal"], stdout=output, stderr=output, env=environment, cwd=directory
        ) as it,
    ):
        try:
            yield f"sc://{_address(log, it)}"
        finally:
            it.kill()  # there is nothing in it that is to be kept
            it.wait(HANG_S)


def _address(log: Path, process: subprocess.Popen[bytes]) -> str:
    def text() -> str:
        return log.read_text(errors="replace")

    wait_until(lambda: process.poll() is not None or _STARTED.search(text()), lambda: text()[-2000:], poll_s=0.1)
    found = _STARTED.search(text())
    assert found is not None, text()[-2000:]
    return found[1]


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
