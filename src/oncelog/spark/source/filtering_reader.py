"""A batch query's reader that accepts filters, for a Spark that pushes them into Python sources.

A filter is *taken over* only if the rows read satisfy it exactly: one on ``partition`` or ``offset``. A lower bound on
``timestamp`` only moves the start; Spark applies that and all other filters.
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
    __slots__ = ()

    def push(self, pushed: Filter) -> bool:
        """Apply a filter to the bounds. Returns True if the ranges then satisfy it exactly."""
        column = _column(pushed)
        if isinstance(pushed, IsNotNull):
            return column in _NEVER_NULL
        if column == "partition":
            return self._push_partition(pushed)
        if column == "offset":
            return self._push_offset(pushed)
        if column == "timestamp":
            # Records after the first match may be older, so Spark still has to apply the filter.
            self._push_timestamp(pushed)
        return False

    def _push_partition(self, pushed: Filter) -> bool:
        test = _test_of(pushed)
        if test is None:
            return False
        self.partition_tests += (test,)
        return True

    def _push_offset(self, pushed: Filter) -> bool:
        match pushed:
            case EqualTo(_, int(value)) | EqualNullSafe(_, int(value)):
                self.restrict_offsets(value, value + 1)
            case GreaterThan(_, int(value)):
                self.restrict_offsets(value + 1, None)
            case GreaterThanOrEqual(_, int(value)):
                self.restrict_offsets(value, None)
            case LessThan(_, int(value)):
                self.restrict_offsets(None, value)
            case LessThanOrEqual(_, int(value)):
                self.restrict_offsets(None, value + 1)
            case In(_, values) if (numbers := _integers(values)) is not None:
                self.restrict_offsets(min(numbers, default=0), max(numbers, default=-1) + 1)
                # Exact only if the numbers have no gaps.
                return len(set(numbers)) == max(numbers, default=-1) + 1 - min(numbers, default=0)
            case _:
                return False
        return True

    def _push_timestamp(self, pushed: Filter) -> None:
        match pushed:
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
        # Brokers do not search for times before 1970 (negative ones are special values).
        if earliest >= 0:
            self.from_ms = earliest if self.from_ms is None else max(self.from_ms, earliest)


def _column(pushed: Filter) -> str | None:
    inner: Any = pushed.child if isinstance(pushed, Not) else pushed
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    return path[0] if len(path) == 1 else None


def _test_of(pushed: Filter) -> Test | None:
    """A filter on a number that is never null, as a predicate; None for an unknown filter."""
    match pushed:
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
    integers = tuple(value for value in values if isinstance(value, int))
    return integers if len(integers) == len(tuple(values)) else None


def _milliseconds(moment: datetime) -> int:
    # Milliseconds, rounded down. A datetime without a zone is UTC, as Spark passes them.
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(milliseconds=1)


# A separate class, because Spark rejects any reader with pushFilters unless spark.sql.python.filterPushdown.enabled is
# on.
class FilteringReader(OncelogReader):
    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._bounds: PushedFilters = PushedFilters()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - PySpark's name
        return [pushed for pushed in filters if not self._bounds.push(pushed)]
