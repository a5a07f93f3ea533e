"""Offsets and times as they are written on the command line.

An offset: ``beginning``, ``end``, ``stored``, ``N``, ``-N`` (N before the end), or a time. A time: ``@MILLISECONDS`` or
ISO 8601 (``2013-06-01``, ``2013-06-01T12:00``, ``…Z``, ``…+02:00``; local unless it says otherwise), perhaps before
1970.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from oncelog.base.units import INT64_MAX

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_DIGITS: Final = 19


class MomentError(ValueError):
    """Text that is neither a time nor, where allowed, an offset."""


class NotATime(MomentError):
    """Text in none of the formats of a time."""


@dataclass(frozen=True, slots=True)
class Start:
    """The start of reading; exactly one is given."""

    keyword: str | None = None
    offset: int | None = None
    before_end: int | None = None
    timestamp_ms: int | None = None


def parse_start(text: str) -> Start:
    """An offset or a time. Raises MomentError."""
    word = text.strip().lower()
    word = {"earliest": "beginning", "latest": "end", "start": "beginning"}.get(word, word)
    if word in ("beginning", "end", "stored"):
        return Start(keyword=word)
    if word.isascii() and word.removeprefix("-").isdigit():
        number = _whole(text, word)
        return Start(before_end=-number) if word.startswith("-") else Start(offset=number)
    try:
        return Start(timestamp_ms=parse_time_ms(text))
    except NotATime as error:
        raise MomentError(f"{error}, nor an offset (beginning, end, stored, N, -N)") from None


def parse_time_ms(text: str) -> int:
    """A time in milliseconds since the epoch. Raises MomentError."""
    plain = text.strip().removeprefix("s@").removeprefix("e@").removeprefix("@")
    if plain.isascii() and plain.isdigit():
        return _whole(text, plain)
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError:
        raise NotATime(f"{text!r} is not a time (@MILLISECONDS, 2013-06-01, 2013-06-01T12:00:00Z)") from None
    try:
        moment = moment if moment.tzinfo else moment.astimezone()
    except (OverflowError, ValueError, OSError):
        raise MomentError(
            f"{text!r} is out of range in the local time zone; name the zone, as in 0001-01-01T00:00:00Z"
        ) from None
    return round((moment - _EPOCH) / timedelta(milliseconds=1))


def _whole(text: str, digits: str) -> int:
    """The number, within the range of a long. Raises MomentError."""
    if len(digits.removeprefix("-").lstrip("0")) > _MOST_DIGITS or abs(int(digits)) > INT64_MAX:
        raise MomentError(f"{text[:40]!r} is larger than {INT64_MAX}, the largest offset or time")
    return int(digits)
