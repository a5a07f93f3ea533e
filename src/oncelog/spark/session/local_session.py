"""The Spark session of commands: a Spark on this machine, a master, or a server of Spark Connect.

Quiet, and stopped at the end; a missing Java, a missing package and a server that is not there are said in one line.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from urllib.request import getproxies

from oncelog.base.private_files import FILE_MODE
from oncelog.base.python_process import SAFE_PATH, python_program
from oncelog.spark.session.errors import SparkSourceError
from oncelog.spark.session.spark_home import quick_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MASTER_VARIABLE: Final = "ONCELOG_SPARK_MASTER"
REMOTE_VARIABLE: Final = "ONCELOG_SPARK_REMOTE"
_SPARKS_REMOTE: Final = "SPARK_REMOTE"
_REMOTE_SCHEME: Final = "sc://"
_REMOTE_PORT: Final = 15002
_CONNECT_SECONDS: Final = 20.0
_SUBMITTED: Final = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS")
"""Set by spark-submit, and by those who do without it."""
_LOGS_ERRORS: Final = "_log_exception"
"""PySpark's method that prints each error with Java's stack. Its loggers are made when there is one: made beforehand,
they would change the class of the loggers that others make meanwhile."""
_ONLY_HERE: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@contextmanager
def local_session(
    *, log: Path | None = None, master: str | None = None, config: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session on this machine, or on ``master``. The JVM's own messages go to ``log`` instead of the terminal.

    ``master`` may be a server of Spark Connect, too (``sc://host:port``). Without it: what spark-submit was told, or
    the environment (``ONCELOG_SPARK_REMOTE``, ``ONCELOG_SPARK_MASTER``, Spark's own ``SPARK_REMOTE``), or ``local[*]``.
    A session that is already running in this process is used, and left running.
    """
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    master = master or _from_environment()
    if (master or "").startswith(_REMOTE_SCHEME):
        with remote_session(master or "") as session:
            yield session
        return
    check_java()
    with _without_sparks_remote(), _jvm_session(log, master, config) as session:
        yield session


def _from_environment() -> str | None:
    """The master or server that the environment names; None for spark-submit's."""
    remote, master = os.environ.get(REMOTE_VARIABLE), os.environ.get(MASTER_VARIABLE)
    if remote and master:
        raise SparkSourceError(f"{REMOTE_VARIABLE} and {MASTER_VARIABLE} are both set: unset one")
    if remote and not remote.startswith(_REMOTE_SCHEME):
        raise SparkSourceError(f"{REMOTE_VARIABLE} must be a server of Spark Connect, sc://host:port, got {remote!r}")
    if any(name in os.environ for name in _SUBMITTED):
        return None
    spark_s = os.environ.get(_SPARKS_REMOTE, "")
    return remote or master or (spark_s if spark_s.startswith(_REMOTE_SCHEME) else "local[*]")


@contextmanager
def remote_session(url: str) -> Iterator[SparkSession]:
    """A session of its own on a server of Spark Connect. Raises SparkSourceError if there is none."""
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")  # none is used
    try:
        from pyspark.sql.connect.session import SparkSession as ConnectSession
    except ImportError as error:
        raise SparkSourceError(
            f"Spark Connect needs more of PySpark: pip install 'oncelog[connect]' ({_first_line(error)})"
        ) from None
    _check_listening(url)
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # PySpark's functions make expressions for servers from now on
    try:
        session = ConnectSession.builder.remote(url).config("spark.sql.session.timeZone", "UTC").create()
    except Exception as error:
        raise SparkSourceError(_no_server(url, _reason(error))) from error
    try:
        yield session  # type: ignore[misc]  # the two kinds of sessions have no common type that says so
    finally:
        session.stop()


def _check_listening(url: str) -> None:
    """Raise SparkSourceError unless somebody listens there: PySpark would try for minutes. Behind a proxy it is left
    to PySpark."""
    where = urlsplit(url)
    try:
        host, port = where.hostname, where.port or _REMOTE_PORT
    except ValueError:
        host, port = None, 0
    if not host:
        raise SparkSourceError(f"a Spark Connect server is named sc://host:port, got {_without_token(url)!r}")
    if any(getproxies().get(one) for one in ("https", "http", "all")):
        return
    try:
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise SparkSourceError(_no_server(url, (error.strerror or str(error)).lower())) from None


def _no_server(url: str, reason: str) -> str:
    return (
        f"no Spark Connect server answers at {_without_token(url)}: {reason}; start one there, or name no server for a "
        "Spark on this machine"
    )


def _without_token(url: str) -> str:
    """The address alone: parameters may be secrets."""
    return url.partition("/;")[0]


def _reason(error: Exception) -> str:
    found = re.search(r'details = "([^"]*)"', str(error))
    return found[1] if found else _first_line(error)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or repr(error)).splitlines()[0]


@contextmanager
def _without_sparks_remote() -> Iterator[None]:
    """Meanwhile Spark is not told of a server: another master was chosen."""
    remote = os.environ.pop(_SPARKS_REMOTE, None)
    try:
        yield
    finally:
        if remote is not None:
            os.environ[_SPARKS_REMOTE] = remote


@contextmanager
def _jvm_session(log: Path | None, master: str | None, config: Mapping[str, str] | None) -> Iterator[SparkSession]:
    """A session whose driver is a JVM of this process."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", python_program())
    builder = SparkSession.builder.appName("oncelog")
    if master:
        builder = builder.master(master)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        f"spark.executorEnv.{SAFE_PATH[0]}": SAFE_PATH[1],
        **(_ONLY_HERE if master and master.startswith("local") else {}),
        **(config or {}),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _without_logged_errors():
        on_interrupt = signal.getsignal(signal.SIGINT)
        with quick_home(master), _safe_path(), _standard_error_to(log):
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
def _without_logged_errors() -> Iterator[None]:
    """While it lasts, py4j and PySpark do not print what they raise anyway (Ctrl-C, a schema that cannot be read)."""
    from pyspark.errors.exceptions.base import PySparkException

    def not_from_py4j(record: logging.LogRecord) -> bool:
        return "py4j" not in record.pathname

    root = logging.getLogger()
    logs = getattr(PySparkException, _LOGS_ERRORS, None)
    root.addFilter(not_from_py4j)
    if logs is not None:
        setattr(PySparkException, _LOGS_ERRORS, lambda _error: None)
    try:
        yield
    finally:
        root.removeFilter(not_from_py4j)
        if logs is not None:
            setattr(PySparkException, _LOGS_ERRORS, logs)


@contextmanager
def _safe_path() -> Iterator[None]:
    """While it lasts, a JVM that is started hands on to its Python workers to import nothing from where they run."""
    name, value = SAFE_PATH
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def _standard_error_to(log: Path | None) -> Iterator[None]:
    """While it lasts, processes started inherit ``log`` as their standard error; the JVM keeps it."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    saved = os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
    os.dup2(target, 2)
    os.close(target)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
