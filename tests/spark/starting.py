"""Streaming queries that start on a machine which is busy.

Spark gives the Python process of a streaming source ten seconds to start, in which it imports PySpark, and no setting
changes that (`PythonWorkerFactory.createSimpleWorker`). A query that fails so has read and written nothing: it is
started again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

NOT_IN_TIME: Final = "Python worker failed to connect back"
_STARTING: Final = "Initializing"


@contextmanager
def patient_starts() -> Iterator[None]:
    """Meanwhile every query of this process is started until its source's Python process was there in time."""
    from pyspark.sql.streaming import DataStreamWriter

    start = DataStreamWriter.start

    def patient(writer: DataStreamWriter, *arguments: str, **options: str) -> StreamingQuery:
        while True:
            query = start(writer, *arguments, **options)  # type: ignore[arg-type]  # handed on
            wait_until(lambda query=query: has_begun(query), "the query's beginning")
            if query.isActive or NOT_IN_TIME not in str(query.exception()):
                return query

    DataStreamWriter.start = patient  # type: ignore[method-assign,assignment]  # until the end of the session
    try:
        yield
    finally:
        DataStreamWriter.start = start  # type: ignore[method-assign]


def has_begun(query: StreamingQuery) -> bool:
    """True once the sources are there, or the query has ended."""
    return not query.isActive or not query.status["message"].startswith(_STARTING)
