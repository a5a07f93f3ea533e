"""Formats durations and times for sentences."""

from __future__ import annotations

from datetime import UTC, datetime

from oncelog.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS


def duration_text(milliseconds: int) -> str:
    """A duration in at most two units: ``340 ms``, ``12 s``, ``3 min 5 s``, ``2 h 10 min``, ``4 d 3 h``."""
    ms = abs(milliseconds)
    if ms < SECOND_MS:
        return f"{ms} ms"
    if ms < MINUTE_MS:
        return f"{ms // SECOND_MS} s"
    for unit_ms, unit, next_ms, next_unit in (
        (DAY_MS, "d", HOUR_MS, "h"),
        (HOUR_MS, "h", MINUTE_MS, "min"),
        (MINUTE_MS, "min", SECOND_MS, "s"),
    ):
        if ms >= unit_ms:
            rest = ms % unit_ms // next_ms
            return f"{ms // unit_ms} {unit}" + (f" {rest} {next_unit}" if rest else "")
    return f"{ms} ms"


def moment_text(milliseconds: int) -> str:
    """Milliseconds since 1970 as ``2026-11-21 10:43:41 UTC``."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms after 1970"
