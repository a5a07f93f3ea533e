"""Times as people write them: ``-1h``, ``15:00``, ``2026-11-27 15:00``, or milliseconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from oncelog.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

# A time without a zone is in the reader's, which the browser sends (`zone=Europe/Berlin`); without one it is UTC.

LEAST_EPOCH_MS: Final = 10**12  # September 2001; a smaller number is an offset.
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_AGO: Final = re.compile(r"-\s*((?:\d{1,9}\s*(?:d|h|m|min|s|ms)\s*)+)(?:ago)?", re.ASCII)
_PART: Final = re.compile(r"(\d+)\s*(ms|min|d|h|m|s)")
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?")
_UNITS_MS: Final = {"d": DAY_MS, "h": HOUR_MS, "m": MINUTE_MS, "min": MINUTE_MS, "s": SECOND_MS, "ms": 1}
EXAMPLES: Final = "-1h, 15:00, 2026-11-27 15:00, or milliseconds since 1970"


def zone_of(name: str) -> tzinfo | None:
    """The time zone of a name; None for UTC, and for one that this machine does not know."""
    if not re.fullmatch(r"[A-Za-z0-9_+/-]{1,64}", name) or name in ("UTC", "Etc/UTC"):
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def milliseconds_of(text: str, now_ms: int, zone: tzinfo | None) -> int | None:
    """The time in a text, in milliseconds since 1970; None if it is not a time."""
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    if ago := _AGO.fullmatch(text):
        return now_ms - sum(int(count) * _UNITS_MS[unit] for count, unit in _PART.findall(ago[1]))
    if clock := _CLOCK.fullmatch(text):
        return _last_time(now_ms, zone or UTC, *(int(part or 0) for part in clock.groups()))
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=zone or UTC) if moment.tzinfo is None else moment
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return None


def local_text(milliseconds: int, zone: tzinfo) -> str:
    """A time in a zone, with the zone's abbreviation."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, zone).strftime("%Y-%m-%d %H:%M:%S %Z")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms after 1970"


def _last_time(now_ms: int, zone: tzinfo, hour: int, minute: int, second: int) -> int | None:
    """The last time that a clock in the zone showed this."""
    now = datetime.fromtimestamp(now_ms / 1000, zone)
    try:
        moment = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
    except ValueError:
        return None
    if moment > now:
        moment -= timedelta(days=1)
    return (moment - _EPOCH) // timedelta(milliseconds=1)
