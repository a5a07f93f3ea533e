"""Streaming queries over Connect that start on a machine which is busy: see ``tests.spark.starting``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.spark.starting import NOT_IN_TIME, has_begun
from tests.waiting import wait_until


@contextmanager
def patient_starts() -> Iterator[None]:
    """Meanwhile a query is started again where Spark did not wait for a Python process: the source's, or that of the
    function of ``foreachBatch``, without which ``start`` itself fails."""
    from pyspark.sql.connect.streaming.readwriter import DataStreamWriter

    start = DataStreamWriter.start

    def patient(writer: DataStreamWriter, *arguments: Any, **options: Any) -> Any:
        while True:
            try:
                query = start(writer, *arguments, **options)
            except Exception as error:
                if NOT_IN_TIME not in str(error):
                    raise
                continue
            wait_until(lambda query=query: has_begun(query), "the query's beginning", poll_s=0.1)  # type: ignore[misc]
            if query.isActive or NOT_IN_TIME not in str(query.exception()):
                return query

    DataStreamWriter.start = patient  # type: ignore[method-assign,assignment]  # until the end of the session
    try:
        yield
    finally:
        DataStreamWriter.start = start  # type: ignore[method-assign]
