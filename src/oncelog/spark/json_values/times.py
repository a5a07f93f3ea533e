"""Parses times in JSON into microseconds: ISO 8601 text with a date, or a number of milliseconds since 1970.

A time is exact to the microsecond and within the years 1 to 9999 of UTC; anything else is None.
"""

from __future__ import annotations

import re
from datetime import date
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, Final

from oncelog.spark.json_values.documents import Number
from oncelog.spark.session.errors import OptionError

_DATE: Final = r"(\d{4})-(\d\d)-(\d\d)"
_CLOCK: Final = r"(\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,30}))?)?"
_DATE_ONLY: Final = re.compile(_DATE, re.ASCII)
_TIME: Final = re.compile(rf"{_DATE}(?:[T ]{_CLOCK} ?(Z|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_MICROS_A_SECOND: Final = 1_000_000
_MICROS_A_DAY: Final = 86_400 * _MICROS_A_SECOND
# The first moment of the year 1.
FIRST_MICROS: Final = (date.min.toordinal() - _EPOCH_DAY) * _MICROS_A_DAY
# The last microsecond of the year 9999.
LAST_MICROS: Final = (date.max.toordinal() + 1 - _EPOCH_DAY) * _MICROS_A_DAY - 1
_LARGEST_OFFSET_S: Final = 18 * 3600
_MICRO: Final = Decimal("0.001")
_EXACT: Final = Context(prec=40, traps=[Inexact, InvalidOperation])
_STEP: Final = re.compile(r"\.([^.\[\]'*\s]+)|\['([^'*]+)'\]|\[(\d{1,9})\]")


def days_of(value: Any) -> int | None:
    """Days since 1970 for text such as ``2013-06-01``; else None."""
    match = _DATE_ONLY.fullmatch(value) if type(value) is str else None
    return None if match is None else _days(match)


def micros_of(value: Any) -> int | None:
    """Microseconds since 1970; text without an offset is UTC. Else None."""
    if type(value) is str:
        match = _TIME.fullmatch(value)
        return None if match is None else _in_years(_micros(match, match[8]))
    if type(value) is int:
        return _in_years(value * 1000)
    return _in_years(_number_micros(value)) if type(value) is Number else None


def local_micros_of(value: Any) -> int | None:
    """Microseconds since 1970 of text without an offset, read as local time. Else None."""
    match = _TIME.fullmatch(value) if type(value) is str else None
    return None if match is None or match[8] else _in_years(_micros(match, None))


def _days(match: re.Match[str]) -> int | None:
    try:
        return date(int(match[1]), int(match[2]), int(match[3])).toordinal() - _EPOCH_DAY
    except ValueError:
        return None


def _micros(match: re.Match[str], offset: str | None) -> int | None:
    days = _days(match)
    if days is None:
        return None
    hour, minute, second = (int(match[group] or 0) for group in (4, 5, 6))
    fraction = (match[7] or "").ljust(6, "0")
    seconds = _offset_seconds(offset)
    if hour > 23 or minute > 59 or second > 59 or fraction[6:].strip("0") or seconds is None:
        return None
    clock = hour * 3600 + minute * 60 + second - seconds
    return days * _MICROS_A_DAY + clock * _MICROS_A_SECOND + int(fraction[:6])


def _offset_seconds(offset: str | None) -> int | None:
    if offset is None or offset == "Z":
        return 0
    hours, minutes = int(offset[1:3]), int(offset[-2:]) if len(offset) > 3 else 0
    seconds = hours * 3600 + minutes * 60
    # Java, and so Spark, allows offsets up to 18 hours.
    if minutes > 59 or seconds > _LARGEST_OFFSET_S:
        return None
    return -seconds if offset[0] == "-" else seconds


def _number_micros(value: Number) -> int | None:
    try:
        return int(Decimal(value).quantize(_MICRO, context=_EXACT).scaleb(3))
    except ArithmeticError:
        return None


def _in_years(micros: int | None) -> int | None:
    return micros if micros is not None and FIRST_MICROS <= micros <= LAST_MICROS else None


class Path:
    """A path into a document, such as ``$.meta.at``, ``$['meta']['at']`` or ``$.times[0]``."""

    def __init__(self, text: str) -> None:
        steps: list[str | int] = []
        position = 1
        while position < len(text):
            match = _STEP.match(text, position)
            if match is None or not text.startswith("$"):
                raise OptionError(
                    f"the event time's path must consist of names and indexes such as $.at, $['at'] or $.at[0], "
                    f"got {text!r}"
                )
            steps.append(int(match[3]) if match[3] else match[1] or match[2])
            position = match.end()
        self._steps = tuple(steps)

    def find(self, document: Any) -> Any:
        for step in self._steps:
            if type(step) is str and type(document) is dict:
                document = document.get(step)
            elif type(step) is int and type(document) is list and step < len(document):
                document = document[step]
            else:
                return None
        return document
