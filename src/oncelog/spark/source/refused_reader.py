"""The reader of a streaming query whose options are refused.

Spark's runner of streaming sources stops its reader in any case: when ``streamReader`` raises there is none, and the
query ends in an UnboundLocalError of Spark's (4.0 to 4.3). So the refusal is raised by whatever the reader is asked.
"""

from __future__ import annotations

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

from oncelog.spark.session.errors import OptionError


class RefusedReader(DataSourceStreamReader):
    """Answers everything with the error of its options."""

    def __init__(self, error: OptionError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802 - PySpark's name
        """A new query has no beginning."""
        raise self._error

    def latestOffset(self, *_: Any) -> NoReturn:  # noqa: N802 - PySpark's name, with a start and a limit from 4.2 on
        """A micro-batch has no end."""
        raise self._error

    def partitions(self, start: Any, end: Any) -> NoReturn:
        """A query that goes on has no ranges."""
        raise self._error

    def read(self, partition: Any) -> NoReturn:
        """A range has no rows."""
        raise self._error
