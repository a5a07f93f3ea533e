"""Classic sessions and those of Spark Connect: the one place that tells them apart.

Over Connect this process has no JVM: no SparkContext, no second session on the same Spark, and what is registered,
planned and run happens on a server, with the server's Python and the server's files. The rules:

1. Settings of the caller's session are his: a classic job has a session of its own beside it; over Connect each action
   runs between setting and restoring, also when it fails.
2. A server whose Python lacks oncelog is found out before a job begins, and said in one line (``check_server``).
3. A streaming query is known to its batches by a property of the SparkContext; over Connect a batch does not say whose
   it is, and it is the only query of the session that started it, or nobody's (``query_of``).
4. A table's directory is one directory for this process and the server, which is tried and not believed
   (``check_shared``): a job that wrote into another one would look like a job without rows.
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

from oncelog.spark.session.errors import ServerLacksOncelog, SparkLostWorker, SparkSourceError, SparkWorkerLate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG: Final = logging.getLogger("oncelog.spark")
_CONNECT: Final = "pyspark.sql.connect."
_MANY: Final = 4096
_NOWHERE: Final = {"kafka.bootstrap.servers": "no-broker:0", "subscribe": "none"}
"""Options of a source that is asked for its columns only."""
_WORKERS_SERVER: Final = "SPARK_CONNECT_LOCAL_URL"
"""Set for the processes in which a server of Connect runs functions of streaming queries."""
_QUERY_PROPERTY: Final = "sql.streaming.queryId"
_RUN_PROPERTY: Final = "spark.jobGroup.id"
_LOST_WORKER: Final = "key not found: PythonWorker"
_LATE_WORKER: Final = "Python worker failed to connect back"
_MISSING: Final = re.compile(
    r"No module named '(oncelog|crc32c|cramjam|re2|pyarrow|numpy|deltalake|pyiceberg)\b"
    r"|Failed to find the data source: (oncelog)\b"
)


def is_connect(spark: SparkSession | DataFrame) -> bool:
    """True for a session or a frame of Spark Connect."""
    return type(spark).__module__.startswith(_CONNECT)


class JobSession:
    """The session of a job: the given one's Spark with the job's settings."""

    def __init__(self, spark: SparkSession, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        self.is_connect = is_connect(spark)
        self.spark = spark if self.is_connect else spark.newSession()
        if not self.is_connect:
            for name, value in self._settings.items():
                self.spark.conf.set(name, value)

    @contextmanager
    def settings(self) -> Iterator[SparkSession]:
        """Meanwhile the job's settings hold: whatever plans or runs a frame goes inside."""
        if not self.is_connect:
            from oncelog.spark.session.versions import active

            with active(self.spark):
                yield self.spark
            return
        conf = self.spark.conf
        before = conf.getAll
        ours = {name: value for name, value in self._settings.items() if before.get(name) != value}
        try:
            for name, value in ours.items():
                conf.set(name, value)
            yield self.spark
        finally:
            _restore(conf, {name: before.get(name) for name in ours})

    def parallelism(self) -> int:
        """The tasks that Spark gives to what does not say how many it wants: the cores, mostly."""
        if not self.is_connect:
            return int(self.spark.sparkContext.defaultParallelism)
        from pyspark.sql import functions as f

        row = self.spark.range(_MANY).select(f.spark_partition_id().alias("n")).agg(f.max("n")).first()
        return 1 if row is None else int(row[0]) + 1

    def is_this_machine(self) -> bool:
        """True if driver and executors are sure to be on this machine."""
        return not self.is_connect and (self.spark.sparkContext.master or "").startswith("local")


def _restore(conf: Any, before: Mapping[str, str | None]) -> None:
    """Set or unset what was changed; a server that is gone has nothing to restore."""
    for name, value in before.items():
        try:
            if value is None:
                conf.unset(name)
            else:
                conf.set(name, value)
        except Exception as error:  # noqa: BLE001 - the job's own error is the one to be told
            LOG.warning("%s could not be set back to %r: %s", name, value, _first_line(error))


@dataclass(frozen=True, slots=True)
class QueryRun:
    """A streaming query's id, and the id of one run of it."""

    query: str
    run: str | None


def query_of(frame: DataFrame) -> QueryRun | None:
    """The query whose ``foreachBatch`` runs in this process with ``frame``; None outside of one.

    Raises SparkSourceError over Connect where the session has several queries, or another one than before.
    """
    if not is_connect(frame):
        context = frame.sparkSession.sparkContext
        query = context.getLocalProperty(_QUERY_PROPERTY)
        return QueryRun(query, context.getLocalProperty(_RUN_PROPERTY)) if query else None
    if _WORKERS_SERVER not in os.environ:
        return None
    from oncelog.spark.session.versions import starting_session

    queries = starting_session(frame.sparkSession).streams.active
    active = [QueryRun(str(one.id), str(one.runId)) for one in queries]
    if len(active) != 1:
        ids = ", ".join(one.query for one in active) or "none"
        raise SparkSourceError(
            f"this session has {len(active)} streaming queries ({ids}), and Spark Connect does not say which of them a "
            "batch is of: name the transaction with query='…', by the query's id if it has run alone before, or start "
            "each query from a session of its own"
        )
    return _only_query(active[0])


@cache
def _own_query() -> list[QueryRun]:
    """The query of this process, once it is known: a server runs a process for each query's function."""
    return []


def _only_query(found: QueryRun) -> QueryRun:
    own = _own_query()
    if not own:
        own.append(found)
    if own[0] != found:
        raise SparkSourceError(f"streaming query {own[0].query} has ended: its function writes nothing any more")
    return found


def check_server(spark: SparkSession) -> None:
    """Raise ServerLacksOncelog unless the server's Python can import the source. Asks servers of Connect only."""
    if not is_connect(spark):
        return
    try:
        spark.read.format("oncelog").options(**_NOWHERE).load().schema  # noqa: B018 - analysed on the server
    except Exception as error:
        raise lacking(error) or SparkSourceError(f"the Spark server does not answer: {_first_line(error)}") from error


def check_shared(session: JobSession, directory: Path) -> None:
    """Raise SparkSourceError unless ``directory`` is the same one for the server's tasks. Asks Connect only."""
    if not session.is_connect:
        return
    said = os.urandom(16).hex()
    probe = directory / f"probe-{said}"
    probe.write_text(said, encoding="utf-8")
    try:
        rows = session.spark.read.text(str(probe.absolute())).collect()
    except Exception as error:
        if "PATH_NOT_FOUND" not in str(error) and "FILE_NOT_EXIST" not in str(error):
            raise SparkSourceError(f"the Spark server cannot read {directory}: {_first_line(error)}") from error
        rows = []
    finally:
        probe.unlink()
    if [row[0] for row in rows] != [said]:
        raise SparkSourceError(
            f"the Spark server does not see {directory}: its tasks write the files of a table, and this process makes "
            "them visible, so both need the directory at the same path"
        )


def lacking(error: BaseException) -> ServerLacksOncelog | None:
    """The package to install, if an error of Spark's comes from its absence."""
    found = _MISSING.search(str(error))
    return None if found is None else ServerLacksOncelog(found[1] or found[2])


def known_error(error: BaseException) -> SparkSourceError | None:
    """The line that says what to do about an error of Spark's: a package to install, a defect to go around, or a
    start that is to be tried again."""
    text = str(error)
    if _LOST_WORKER in text:
        return SparkLostWorker()
    return lacking(error) or (SparkWorkerLate() if _LATE_WORKER in text else None)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or repr(error)).splitlines()[0]
