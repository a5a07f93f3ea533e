"""A local Spark session for commands: quiet, stopped at the end; a missing Java is said in one line."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from oncelog.spark.errors import SparkSourceError
from oncelog.spark.spark_home import quick_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MASTER_VARIABLE: Final = "ONCELOG_SPARK_MASTER"
_SUBMITTED: Final = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS")
"""Set by spark-submit, and by those who do without it."""
_ONLY_HERE: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@contextmanager
def local_session(
    *, log: Path | None = None, master: str | None = None, config: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session on this machine, or on ``master``. The JVM's own messages go to ``log`` instead of the terminal.

    Without ``master``: what spark-submit was told, or ``ONCELOG_SPARK_MASTER`` in the environment, or ``local[*]``.
    A session that is already running in this process is used, and left running.
    """
    check_java()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("oncelog")
    if not master and not any(name in os.environ for name in _SUBMITTED):
        master = os.environ.get(MASTER_VARIABLE) or "local[*]"
    if master:
        builder = builder.master(master)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        **(_ONLY_HERE if master and master.startswith("local") else {}),
        **(config or {}),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _without_py4j_logging():
        on_interrupt = signal.getsignal(signal.SIGINT)
        with quick_home(master), _standard_error_to(log):
            session = builder.getOrCreate()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, on_interrupt)  # PySpark's own calls the JVM in the middle of another call
        try:
            yield session
        finally:
            with suppress(Exception):  # Ctrl-C in a terminal ends the JVM, too
                session.stop()


def check_java() -> None:
    """Raise SparkSourceError unless a Java is there for Spark to run on."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and (Path(home) / "bin" / "java").exists()):
        raise SparkSourceError("Spark needs Java 17 or 21: install a JRE, or set JAVA_HOME")


@contextmanager
def _without_py4j_logging() -> Iterator[None]:
    """While it lasts, py4j does not print on the root logger what it raises anyway (Ctrl-C among it)."""

    def not_from_py4j(record: logging.LogRecord) -> bool:
        return "py4j" not in record.pathname

    root = logging.getLogger()
    root.addFilter(not_from_py4j)
    try:
        yield
    finally:
        root.removeFilter(not_from_py4j)


@contextmanager
def _standard_error_to(log: Path | None) -> Iterator[None]:
    """While it lasts, processes started inherit ``log`` as their standard error; the JVM keeps it."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    saved = os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(target, 2)
    os.close(target)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
