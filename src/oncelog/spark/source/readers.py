"""Chooses the readers of a query for the installed Spark, and a reader that rejects wrong options.

Readers are imported on first use, because Spark starts a process for each planning step.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

from oncelog.spark.session import versions
from oncelog.spark.session.errors import OptionError
from oncelog.spark.source.options import SourceOptions

if TYPE_CHECKING:
    from oncelog.spark.source.batch_reader import OncelogReader
    from oncelog.spark.source.stream_reader import OncelogStreamReader


_LOG: Final = logging.getLogger("oncelog.spark")


def batch_reader(options: SourceOptions) -> OncelogReader:
    from oncelog.spark.source.batch_reader import OncelogReader

    if not options.pushdown:
        return OncelogReader(options)
    if not versions.has_pushdown():
        version = versions.spark_version()
        _LOG.warning("option pushdown has no effect: %s pushes no filters into Python sources", version)
        return OncelogReader(options)
    from oncelog.spark.source.filtering_reader import FilteringReader

    return FilteringReader(options)


def stream_reader(options: SourceOptions) -> OncelogStreamReader:
    if versions.has_admission_control():
        from oncelog.spark.source.admission_reader import AdmissionReader

        return AdmissionReader(options)
    from oncelog.spark.source.self_limited_reader import SelfLimitedReader

    return SelfLimitedReader(options)


class RejectedReader(DataSourceStreamReader):
    """The reader of a streaming query with wrong options: every call raises their error.

    ``streamReader`` must not raise: Spark's runner would stop a reader it does not have, and the query end in Spark's
    own UnboundLocalError (4.0 to 4.3).
    """

    def __init__(self, error: OptionError) -> None:
        self._error = error

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise self._error

    initialOffset = latestOffset = partitions = read = _refuse  # noqa: N815 - PySpark's names
