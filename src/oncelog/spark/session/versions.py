"""The differences between the versions of PySpark, found by what each of them has: the one place that knows them.

| feature | Spark | without it |
|---|---|---|
| filters pushed into Python sources | 4.1 | option ``pushdown`` has no effect: Spark filters the rows |
| ``DataSourceStreamArrowWriter`` | 4.1 | a writer of batches that is a writer of streams, too |
| registering a source that Spark finds by itself | 4.1 | it is left as it was found |
| the zone of times in Arrow's schema is named | 4.2 | UTC is asked for by a flag |
| admission control of Python streaming sources | 4.2 | ``self_limited_reader`` keeps its position |

Over Connect, a batch of ``foreachBatch`` has the session that started its query up to 4.2, a clone of it from 4.3 on:
``starting_session`` finds the first.

A version's number is never compared: vendors rent out versions of their own, with later features in them.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import datasource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
    from pyspark.sql.types import StructType
elif hasattr(datasource, "DataSourceStreamArrowWriter"):
    StreamArrowWriter = datasource.DataSourceStreamArrowWriter
else:

    class StreamArrowWriter(datasource.DataSourceArrowWriter, datasource.DataSourceStreamWriter):
        """A streaming query's writer that takes Arrow batches. Spark's tasks ask for the first class, whatever the
        query; the calls of ``commit`` and ``abort`` are those of the second."""


_ALREADY_THERE: Final = "DATA_SOURCE_ALREADY_EXISTS"
_STARTED_BY: Final = "spark_connect_session"
"""A variable of PySpark's program that runs the function of ``foreachBatch`` for a server of Connect."""

__all__ = [
    "StreamArrowWriter",
    "active",
    "arrow_schema",
    "has_admission_control",
    "has_pushdown",
    "register",
    "spark_version",
    "starting_session",
]


def has_admission_control() -> bool:
    """True if a streaming source is told its position, a limit, and that it is read under ``Trigger.AvailableNow``."""
    return importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None


def has_pushdown() -> bool:
    """True if filters are pushed into Python sources."""
    return hasattr(datasource.DataSourceReader, "pushFilters")


def arrow_schema(columns: StructType) -> pa.Schema:
    """Columns in Arrow's types, times with a zone in UTC."""
    from pyspark.sql.pandas import types

    convert: Any = types.to_arrow_schema
    if "timezone" in inspect.signature(convert).parameters:
        schema: pa.Schema = convert(columns, timezone="UTC")
    else:
        schema = convert(columns, timestamp_utc=True)
    return schema


def register(session: SparkSession, source: type[DataSource]) -> None:
    """Make a source known to a session, unless Spark has found it by itself and refuses to be told."""
    from pyspark.errors import AnalysisException

    try:
        with active(session):
            session.dataSource.register(source)
    except AnalysisException as error:
        if _ALREADY_THERE not in str(error):
            raise


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Meanwhile a classic session is the active one of its thread.

    Spark asks that one whether a format is known: when a format is registered, and for every write and stream,
    whichever session the frame is of.
    """
    if not hasattr(spark, "_jsparkSession"):  # of Spark Connect
        yield
        return
    sessions = getattr(spark._jvm, "org.apache.spark.sql.classic.SparkSession")
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def starting_session(of_batch: SparkSession) -> SparkSession:
    """The session that started the query of a batch, in a process that runs ``foreachBatch`` for a server of Connect.

    From Spark 4.3 on the batch has a clone, which knows no queries; PySpark keeps the other in a variable of the
    function that calls ours, in the main thread. Where that is not so, ``of_batch`` is all there is.
    """
    found = of_batch
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:  # to the outermost, which is PySpark's: others may use the name, too
        found = frame.f_locals.get(_STARTED_BY, found)
        frame = frame.f_back
    return found


def spark_version() -> str:
    """``Spark 4.1.4``, for messages."""
    import pyspark

    return f"Spark {pyspark.__version__}"
