"""The Spark session of a command: local, on a master, or on a Spark Connect server.

It logs nothing to the terminal, and is stopped at the end unless it was already running. A missing Java or package, or
an unreachable server, is reported as a one-line error.
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
from oncelog.spark.session.errors import SparkSourceError, first_line
from oncelog.spark.session.spark_home import unpacked_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MASTER_VARIABLE: Final = "ONCELOG_SPARK_MASTER"
REMOTE_VARIABLE: Final = "ONCELOG_SPARK_REMOTE"
_SPARK_REMOTE_VARIABLE: Final = "SPARK_REMOTE"
_REMOTE_SCHEME: Final = "sc://"
_REMOTE_PORT: Final = 15002
_CONNECT_SECONDS: Final = 20.0
# Set by spark-submit, or by users who configure its gateway themselves.
_SUBMIT_VARIABLES: Final = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS")
# PySpark's method that logs each error with Java's stack trace. Its loggers are created on first use; creating them
# earlier would change the class of loggers that other code creates.
_LOG_METHOD: Final = "_log_exception"
_LOOPBACK_SETTINGS: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@contextmanager
def local_session(
    *, log: Path | None = None, master: str | None = None, config: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Yield a session on this machine or on ``master``, which may be ``sc://host:port``. The JVM's own output goes to
    ``log``.

    By default spark-submit's settings apply, then the environment (``ONCELOG_SPARK_REMOTE``, ``ONCELOG_SPARK_MASTER``,
    Spark's ``SPARK_REMOTE``), then ``local[*]``. A session already running in this process is used and left running.
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
    with _without_spark_remote(), _jvm_session(log, master, config) as session:
        yield session


def _from_environment() -> str | None:
    remote, master = os.environ.get(REMOTE_VARIABLE), os.environ.get(MASTER_VARIABLE)
    if remote and master:
        raise SparkSourceError(f"{REMOTE_VARIABLE} and {MASTER_VARIABLE} are both set: unset one")
    if remote and not remote.startswith(_REMOTE_SCHEME):
        raise SparkSourceError(f"{REMOTE_VARIABLE} must be a server of Spark Connect, sc://host:port, got {remote!r}")
    if any(name in os.environ for name in _SUBMIT_VARIABLES):
        return None
    spark_remote = os.environ.get(_SPARK_REMOTE_VARIABLE, "")
    return remote or master or (spark_remote if spark_remote.startswith(_REMOTE_SCHEME) else "local[*]")


@contextmanager
def remote_session(url: str) -> Iterator[SparkSession]:
    """Yield a new session on a Spark Connect server. Raises SparkSourceError if none answers."""
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")  # pandas is not used
    try:
        from pyspark.sql.connect.session import SparkSession as ConnectSession
    except ImportError as error:
        raise SparkSourceError(
            f"Spark Connect needs additional packages: pip install 'oncelog[connect]' ({first_line(error)})"
        ) from None
    _check_listening(url)
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # makes PySpark's functions build expressions for servers
    try:
        session = ConnectSession.builder.remote(url).config("spark.sql.session.timeZone", "UTC").create()
    except Exception as error:
        raise SparkSourceError(_connect_error(url, _error_details(error))) from error
    try:
        yield session  # type: ignore[misc]  # PySpark has no common type of both kinds of sessions
    finally:
        session.stop()


def _check_listening(url: str) -> None:
    # Raise SparkSourceError unless a server listens at the address; PySpark would retry for minutes. Behind a proxy a
    # direct connection proves nothing, and PySpark connects by itself.
    address = urlsplit(url)
    try:
        host, port = address.hostname, address.port or _REMOTE_PORT
    except ValueError:
        host, port = None, 0
    if not host:
        raise SparkSourceError(f"a Spark Connect server is named sc://host:port, got {_without_token(url)!r}")
    if any(getproxies().get(scheme) for scheme in ("https", "http", "all")):
        return
    try:
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise SparkSourceError(_connect_error(url, (error.strerror or str(error)).lower())) from None


def _connect_error(url: str, reason: str) -> str:
    return (
        f"no Spark Connect server answers at {_without_token(url)}: {reason}; start one there, or omit the server to "
        "use a Spark on this machine"
    )


def _without_token(url: str) -> str:
    # The address without parameters, which may be secrets.
    return url.partition("/;")[0]


def _error_details(error: Exception) -> str:
    details = re.search(r'details = "([^"]*)"', str(error))
    return details[1] if details else first_line(error)


@contextmanager
def _without_spark_remote() -> Iterator[None]:
    # Hide SPARK_REMOTE from PySpark within the block: another master was chosen.
    remote = os.environ.pop(_SPARK_REMOTE_VARIABLE, None)
    try:
        yield
    finally:
        if remote is not None:
            os.environ[_SPARK_REMOTE_VARIABLE] = remote


@contextmanager
def _jvm_session(log: Path | None, master: str | None, config: Mapping[str, str] | None) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", python_program())
    builder = SparkSession.builder.appName("oncelog")
    if master:
        builder = builder.master(master)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # Executors, too, must not import modules from where they run.
        f"spark.executorEnv.{SAFE_PATH[0]}": SAFE_PATH[1],
        **(_LOOPBACK_SETTINGS if master and master.startswith("local") else {}),
        **(config or {}),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _errors_not_logged():
        # PySpark installs its own handler for Ctrl-C.
        on_interrupt = signal.getsignal(signal.SIGINT)
        with unpacked_home(master), _safe_path(), _redirect_stderr(log):
            session = builder.getOrCreate()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, on_interrupt)  # PySpark's handler calls the JVM amid another call
        try:
            yield session
        finally:
            with suppress(Exception):  # Ctrl-C in a terminal also ends the JVM
                session.stop()


def check_java() -> None:
    """Raise SparkSourceError unless Spark can find a Java installation."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and (Path(home) / "bin" / "java").exists()):
        raise SparkSourceError("Spark needs Java 17 or 21: install a JRE, or set JAVA_HOME")


@contextmanager
def _errors_not_logged() -> Iterator[None]:
    """Stop py4j and PySpark from logging errors that they also raise (Ctrl-C, an unreadable schema)."""
    from pyspark.errors.exceptions.base import PySparkException

    def not_from_py4j(record: logging.LogRecord) -> bool:
        return "py4j" not in record.pathname

    root = logging.getLogger()
    logs = getattr(PySparkException, _LOG_METHOD, None)
    root.addFilter(not_from_py4j)
    if logs is not None:
        setattr(PySparkException, _LOG_METHOD, lambda _error: None)
    try:
        yield
    finally:
        root.removeFilter(not_from_py4j)
        if logs is not None:
            setattr(PySparkException, _LOG_METHOD, logs)


@contextmanager
def _safe_path() -> Iterator[None]:
    """Within the block, make a new JVM's Python workers ignore modules in their working directory."""
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
def _redirect_stderr(log: Path | None) -> Iterator[None]:
    """Within the block, new processes inherit ``log`` as standard error; the JVM keeps it."""
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
