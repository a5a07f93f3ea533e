"""A server of Spark Connect as a process of its own, from the jars of the PySpark that this Python has."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from oncelog.spark.session import versions
from tests.spark.jvms import class_path, java_options, spark_home
from tests.waiting import HANG_S, wait_until

_STARTED: Final = re.compile(r"Spark Connect server started at: (\S+:\d+)")
_OPENED: Final = ("java.nio", "sun.nio.ch", "java.util", "java.lang")
_SETTINGS: Final = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}

_AROUND_SPARK_52642: Final = "spark.python.worker.reuse=false"
"""As `docs/deploy-spark.md` says: Spark 4.0 mislays workers where one task reads and writes with Python."""


@contextmanager
def connect_server(
    directory: Path, python_path: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The address of a running server, ``sc://host:port``. It writes its log into ``directory``."""
    opened = [f"--add-opens=java.base/{item}=ALL-UNNAMED" for item in _OPENED]
    command = ["java", *opened, "-Dio.netty.tryReflectionSetAccessible=true", *java_options(), "-Xmx1g"]
    command += ["-cp", class_path(), "org.apache.spark.deploy.SparkSubmit", "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    if versions.spark_version().startswith("Spark 4.0."):
        command += ["--conf", _AROUND_SPARK_52642]
    for name, value in {**_SETTINGS, **(settings or {})}.items():
        command += ["--conf", f"{name}={value}"]
    environment = {**os.environ, "SPARK_HOME": str(spark_home()), "PYSPARK_PYTHON": sys.executable}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1"}
    if python_path is not None:
        environment["PYTHONPATH"] = python_path
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
    match = _STARTED.search(text())
    assert match is not None, text()[-2000:]
    return match[1]
