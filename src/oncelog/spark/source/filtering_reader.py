"""A batch query's reader that takes filters, where Spark pushes them into Python sources.

A class of its own, because Spark refuses any reader that has ``pushFilters`` unless
``spark.sql.python.filterPushdown.enabled`` is on.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.datasource import Filter

from oncelog.spark.source.batch_reader import OncelogReader
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.plan.pushdown import PushedFilters


class FilteringReader(OncelogReader):
    """A reader that narrows its ranges by filters on ``partition``, ``offset`` and ``timestamp``."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._bounds: PushedFilters = PushedFilters()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - PySpark's name
        """Take in filters; those that Spark has to apply still are returned."""
        return [one for one in filters if not self._bounds.take(one)]
