"""A batch query's reader that takes filters, where Spark pushes them into Python sources.

A class of its own, because Spark refuses any reader that has ``pushFilters`` unless
``spark.sql.python.filterPushdown.enabled`` is on.

The rule: a filter is *taken* only if the rows read fulfil it exactly; then Spark does not look at it again. Filters on
``partition`` and ``offset`` are exact. A lower bound on ``timestamp`` moves the start to the first record that is as
late (ListOffsets), but later records may be older, so Spark has to apply it still; an upper bound says nothing about
offsets and is left to Spark altogether. A filter that is not understood is left to Spark.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from oncelog.spark.source.batch_reader import OncelogReader
from oncelog.spark.source.offset_ranges import RangeBounds, Test
from oncelog.spark.source.options import SourceOptions

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})


class PushedFilters(RangeBounds):
    """Filters taken from a query, as bounds on its ranges."""

    __slots__ = ()

    def take(self, given: Filter) -> bool:
        """Take a filter; True if the narrowed ranges fulfil it exactly, so that Spark need not apply it."""
        column = _column(given)
        if isinstance(given, IsNotNull):
            return column in _NEVER_NULL
        if column == "partition":
            return self._take_partition(given)
        if column == "offset":
            return self._take_offset(given)
        if column == "timestamp":
            self._take_timestamp(given)
        return False

    def _take_partition(self, given: Filter) -> bool:
        test = _test_of(given)
        if test is None:
            return False
        self.partition_tests += (test,)
        return True

    def _take_offset(self, given: Filter) -> bool:
        match given:
            case EqualTo(_, int(value)) | EqualNullSafe(_, int(value)):
                self.between(value, value + 1)
            case GreaterThan(_, int(value)):
                self.between(value + 1, None)
            case GreaterThanOrEqual(_, int(value)):
                self.between(value, None)
            case LessThan(_, int(value)):
                self.between(None, value)
            case LessThanOrEqual(_, int(value)):
                self.between(None, value + 1)
            case In(_, values) if (numbers := _integers(values)) is not None:
                self.between(min(numbers, default=0), max(numbers, default=-1) + 1)
                return len(set(numbers)) == max(numbers, default=-1) + 1 - min(numbers, default=0)
            case _:
                return False
        return True

    def _take_timestamp(self, given: Filter) -> None:
        match given:
            case (
                EqualTo(_, datetime() as value)
                | EqualNullSafe(_, datetime() as value)
                | GreaterThan(_, datetime() as value)
                | GreaterThanOrEqual(_, datetime() as value)
            ):
                earliest = _milliseconds(value)
            case In(_, values) if values and all(isinstance(value, datetime) for value in values):
                earliest = min(map(_milliseconds, values))
            case _:
                return
        if earliest >= 0:
            self.from_ms = earliest if self.from_ms is None else max(self.from_ms, earliest)


def _column(given: Filter) -> str | None:
    inner: Any = given.child if isinstance(given, Not) else given
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    return path[0] if len(path) == 1 else None


def _test_of(given: Filter) -> Test | None:
    """A filter on a number that is never null, as a function; None if the filter is not understood."""
    match given:
        case EqualTo(_, int(value)) | EqualNullSafe(_, int(value)):
            return lambda number: number == value
        case GreaterThan(_, int(value)):
            return lambda number: number > value
        case GreaterThanOrEqual(_, int(value)):
            return lambda number: number >= value
        case LessThan(_, int(value)):
            return lambda number: number < value
        case LessThanOrEqual(_, int(value)):
            return lambda number: number <= value
        case In(_, values) if (numbers := _integers(values)) is not None:
            return lambda number: number in numbers
        case IsNull():
            return lambda _: False
        case Not(child):
            positive = _test_of(child)
            return None if positive is None else lambda number: not positive(number)
    return None


def _integers(values: Iterable[object]) -> tuple[int, ...] | None:
    found = tuple(value for value in values if isinstance(value, int))
    return found if len(found) == len(tuple(values)) else None


def _milliseconds(moment: datetime) -> int:
    """Rounded down. A moment without a zone is UTC, as Spark hands them out."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(milliseconds=1)


class FilteringReader(OncelogReader):
    """A reader that narrows its ranges by filters on ``partition``, ``offset`` and ``timestamp``."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._bounds: PushedFilters = PushedFilters()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - PySpark's name
        """Take in filters; those that Spark has to apply still are returned."""
        return [one for one in filters if not self._bounds.take(one)]
