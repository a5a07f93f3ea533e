"""Hides the differences between PySpark versions, detected by their features, never by version numbers.

| feature | Spark | without it |
|---|---|---|
| filters pushed into Python sources | 4.1 | option ``pushdown`` has no effect: Spark filters the rows |
| ``DataSourceStreamArrowWriter`` | 4.1 | a batch writer that is also a stream writer |
| registering a source that Spark found by itself | 4.1 | the source is left as found |
| a named time zone in Arrow's schema | 4.2 | a flag asks for UTC |
| admission control of Python streaming sources | 4.2 | ``self_limited_reader`` keeps its position |
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
        """A streaming query's writer that accepts Arrow batches. Spark's tasks require the first base class for every
        query; ``commit`` and ``abort`` are called as the second declares them."""


_ALREADY_THERE: Final = "DATA_SOURCE_ALREADY_EXISTS"
# A local variable of PySpark's program that runs ``foreachBatch`` functions for a Connect server.
_STARTED_BY: Final = "spark_connect_session"

__all__ = [
    "StreamArrowWriter",
    "active_session",
    "arrow_schema",
    "has_admission_control",
    "has_pushdown",
    "register",
    "spark_version",
    "starting_session",
]


def has_admission_control() -> bool:
    """True if Spark passes a streaming source its position and a limit, and announces ``Trigger.AvailableNow``."""
    return importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None


def has_pushdown() -> bool:
    # The feature, not the version: vendors ship their own versions with features of later ones.
    return hasattr(datasource.DataSourceReader, "pushFilters")


def arrow_schema(columns: StructType) -> pa.Schema:
    """Columns as an Arrow schema; times with a zone are UTC."""
    from pyspark.sql.pandas import types

    convert: Any = types.to_arrow_schema
    if "timezone" in inspect.signature(convert).parameters:
        schema: pa.Schema = convert(columns, timezone="UTC")
    else:
        schema = convert(columns, timestamp_utc=True)
    return schema


def register(session: SparkSession, source: type[DataSource]) -> None:
    """Register a source with a session, unless Spark has found it by itself and rejects the registration."""
    from pyspark.errors import AnalysisException

    try:
        with active_session(session):
            session.dataSource.register(source)
    except AnalysisException as error:
        if _ALREADY_THERE not in str(error):
            raise


@contextmanager
def active_session(spark: SparkSession) -> Iterator[None]:
    """Make a classic session the active one of its thread within the block. Spark looks up formats there, whatever
    session the frame belongs to."""
    if not hasattr(spark, "_jsparkSession"):  # a Spark Connect session
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
    """The session that started a batch's query, in a process that runs ``foreachBatch`` for a Connect server.

    From Spark 4.3 on the batch has a clone that knows no queries. PySpark keeps the original in a variable of the
    function that calls the user's, in the main thread. Returns ``of_batch`` if it is not there.
    """
    session = of_batch
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:  # up to the outermost frame, PySpark's: inner ones may use the same name
        session = frame.f_locals.get(_STARTED_BY, session)
        frame = frame.f_back
    return session


def spark_version() -> str:
    """``Spark 4.1.4``, for messages."""
    import pyspark

    return f"Spark {pyspark.__version__}"
