"""Hides the differences between classic Spark sessions and those of Spark Connect.

With Connect this process has no JVM; frames are planned and run on a server, with the server's Python and files.

1. A job leaves the settings of the caller's session unchanged. A classic job has its own session; with Connect, each
   action sets and restores them, even when it fails.
2. A classic batch finds its streaming query in a property of the SparkContext. With Connect it must be the only query
   of the session that started it (``query_of``).
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from oncelog.spark.session.errors import (
    ServerLacksOncelog,
    SparkLostWorker,
    SparkSourceError,
    SparkWorkerLate,
    first_line,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG: Final = logging.getLogger("oncelog.spark")
_CONNECT: Final = "pyspark.sql.connect."
# More rows than any default parallelism, so that each partition gets some.
_MANY_ROWS: Final = 4096
# Options of a source that only has to report its columns.
_UNUSED_OPTIONS: Final = {"kafka.bootstrap.servers": "no-broker:0", "subscribe": "none"}
# Set in processes where a Connect server runs the functions of streaming queries.
_CONNECT_WORKER_VARIABLE: Final = "SPARK_CONNECT_LOCAL_URL"
_QUERY_PROPERTY: Final = "sql.streaming.queryId"
_RUN_PROPERTY: Final = "spark.jobGroup.id"
_LOST_WORKER: Final = "key not found: PythonWorker"
_LATE_WORKER: Final = "Python worker failed to connect back"
REDACTED_TEXTS: Final = "spark.sql.redaction.string.regex"
_SECRET_NAME: Final = 'secret|password|token|credential|jaas|user[.]info|access[.]?key|[.]key(?=")|[.]url'
SECRET_OPTIONS: Final = rf'key: "(?i:[^"]*(?:{_SECRET_NAME})[^"]*)"\s+value: "[^"\\]*+(?:\\.[^"\\]*+)*+"'
_MISSING: Final = re.compile(
    r"No module named '(oncelog|crc32c|cramjam|re2|pyarrow|numpy|deltalake|pyiceberg)\b"
    r"|Failed to find the data source: (oncelog)\b"
)


def is_connect(spark: SparkSession | DataFrame) -> bool:
    return type(spark).__module__.startswith(_CONNECT)


def hide_secrets(spark: SparkSession) -> None:
    """Make a server of Spark Connect hide option values that may be secrets in its pages, job descriptions and event
    log, as Spark does in plans: it writes a query's message there. A server's own pattern stays."""
    present = spark.conf.get(REDACTED_TEXTS, None)
    if present is None or SECRET_OPTIONS not in present:
        spark.conf.set(REDACTED_TEXTS, f"{present}|{SECRET_OPTIONS}" if present else SECRET_OPTIONS)


class JobSession:
    def __init__(self, spark: SparkSession, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        self.is_connect = is_connect(spark)
        # With Connect there is no second session on the same Spark: settings() sets and restores instead.
        self.spark = spark if self.is_connect else spark.newSession()
        if not self.is_connect:
            for name, value in self._settings.items():
                self.spark.conf.set(name, value)

    @contextmanager
    def settings(self) -> Iterator[SparkSession]:
        """Apply the job's settings within the block. Plan and run frames inside it."""
        if not self.is_connect:
            from oncelog.spark.session.versions import active_session

            with active_session(self.spark):
                yield self.spark
            return
        conf = self.spark.conf
        before = conf.getAll
        changed = {name: value for name, value in self._settings.items() if before.get(name) != value}
        try:
            for name, value in changed.items():
                conf.set(name, value)
            yield self.spark
        finally:
            _restore(conf, {name: before.get(name) for name in changed})

    def parallelism(self) -> int:
        if not self.is_connect:
            return int(self.spark.sparkContext.defaultParallelism)
        from pyspark.sql import functions as f

        row = self.spark.range(_MANY_ROWS).select(f.spark_partition_id().alias("n")).agg(f.max("n")).first()
        return 1 if row is None else int(row[0]) + 1

    def is_this_machine(self) -> bool:
        """True if driver and executors certainly run on this machine."""
        return not self.is_connect and (self.spark.sparkContext.master or "").startswith("local")


def _restore(conf: Any, before: Mapping[str, str | None]) -> None:
    # Restore the changed settings. A lost server does not raise.
    for name, value in before.items():
        try:
            if value is None:
                conf.unset(name)
            else:
                conf.set(name, value)
        except Exception as error:  # noqa: BLE001 - must not hide the job's own error
            LOG.warning("%s could not be restored to %r: %s", name, value, first_line(error))


@dataclass(frozen=True, slots=True)
class QueryRun:
    query: str
    run: str | None


def query_of(frame: DataFrame) -> QueryRun | None:
    """The query whose ``foreachBatch`` runs with ``frame`` in this process; None outside of one.

    Raises SparkSourceError with Connect if the session has several queries, or another one than before.
    """
    if not is_connect(frame):
        context = frame.sparkSession.sparkContext
        query = context.getLocalProperty(_QUERY_PROPERTY)
        return QueryRun(query, context.getLocalProperty(_RUN_PROPERTY)) if query else None
    if _CONNECT_WORKER_VARIABLE not in os.environ:
        return None
    from oncelog.spark.session.versions import starting_session

    queries = starting_session(frame.sparkSession).streams.active
    active = [QueryRun(str(query.id), str(query.runId)) for query in queries]
    # A Connect batch does not name its query.
    if len(active) != 1:
        ids = ", ".join(query.query for query in active) or "none"
        raise SparkSourceError(
            f"this session has {len(active)} streaming queries ({ids}), and Spark Connect does not tell which of them "
            "a batch belongs to: name the transaction with query='…' (the query's id if it ran alone before), or start "
            "each query from its own session"
        )
    return _only_query(active[0])


@cache
def _process_query() -> list[QueryRun]:
    # The query of this process, once known. A server runs one process for the function of each query.
    return []


def _only_query(query: QueryRun) -> QueryRun:
    own = _process_query()
    if not own:
        own.append(query)
    if own[0] != query:
        raise SparkSourceError(f"streaming query {own[0].query} has ended: its function writes nothing any more")
    return query


def check_server(spark: SparkSession) -> None:
    """Raise ServerLacksOncelog unless the server's Python can import the source. Checks Connect servers only."""
    if not is_connect(spark):
        return
    try:
        spark.read.format("oncelog").options(**_UNUSED_OPTIONS).load().schema  # noqa: B018 - analysed on the server
    except Exception as error:
        raise missing_package_error(error) or SparkSourceError(
            f"the Spark server does not answer: {first_line(error)}"
        ) from error


def check_shared(session: JobSession, directory: Path) -> None:
    """Raise SparkSourceError unless ``directory`` is the same for the server's tasks. Checks Connect only."""
    if not session.is_connect:
        return
    token = os.urandom(16).hex()
    probe = directory / f"probe-{token}"
    # A random token: an older file of that name cannot pass for this one.
    probe.write_text(token, encoding="utf-8")
    try:
        rows = session.spark.read.text(str(probe.absolute())).collect()
    except Exception as error:
        if "PATH_NOT_FOUND" not in str(error) and "FILE_NOT_EXIST" not in str(error):
            raise SparkSourceError(f"the Spark server cannot read {directory}: {first_line(error)}") from error
        rows = []
    finally:
        probe.unlink()
    # A job that wrote to another directory would look like a job without rows.
    if [row[0] for row in rows] != [token]:
        raise SparkSourceError(
            f"the Spark server does not see {directory}: its tasks write a table's files and this process publishes "
            "them, so both need the directory at the same path"
        )


def missing_package_error(error: BaseException) -> ServerLacksOncelog | None:
    """The error that names the package to install, if its absence caused a Spark error."""
    match = _MISSING.search(str(error))
    return None if match is None else ServerLacksOncelog(match[1] or match[2])


def known_error(error: BaseException) -> SparkSourceError | None:
    """The SparkSourceError that tells how to resolve a Spark error: install a package, avoid a defect, or run again."""
    text = str(error)
    if _LOST_WORKER in text:
        return SparkLostWorker()
    return missing_package_error(error) or (SparkWorkerLate() if _LATE_WORKER in text else None)
