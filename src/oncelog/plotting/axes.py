"""Axes: round ticks for values and times, and short labels. Pure functions."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final, Literal

Unit = Literal["count", "per second", "bytes per second", "seconds"]
_STEPS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
_DAY_S: Final = 86_400
MOST_TIME_TICKS: Final = 7


def value_ticks(highest: float, *, steps: int = 4, whole: bool = False) -> list[float]:
    """About ``steps`` ticks from 0 to at least ``highest``, at 1, 2 or 5 times a power of ten; ``whole``: at least 1
    apart.
    """
    if not math.isfinite(highest) or highest <= 0:
        return [0.0, 1.0]
    raw = highest / steps
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(times * power for times in (1, 2, 5, 10) if times * power >= raw * (1 - 1e-9))
    if whole:
        step = max(1.0, step)
    return [number * step for number in range(math.ceil(highest / step - 1e-9) + 1)]


def unit_base(highest: float) -> int:
    """Bytes per unit that fits ``highest``, so that ticks are round in that unit."""
    return next((1024**power for power in (4, 3, 2, 1) if highest >= 1024**power), 1)


def time_ticks(begin_ms: int, end_ms: int, most: int = MOST_TIME_TICKS) -> list[int]:
    """Round times in the range, at most ``most``."""
    span_s = max(1, (end_ms - begin_ms) // 1000)
    days = math.ceil(span_s / most / _DAY_S) * _DAY_S
    step_ms = 1000 * next((step_s for step_s in _STEPS_S if span_s / step_s <= most), days)
    return list(range(-(-begin_ms // step_ms) * step_ms, end_ms + 1, step_ms))


def time_label(time_ms: int, span_ms: int) -> str:
    """A time of day in UTC, with seconds for short spans, or a date for long ones."""
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(time_ms)
    if span_ms > 2 * _DAY_S * 1000:
        return f"{moment:%Y-%m-%d}"
    return f"{moment:%H:%M:%S}" if span_ms < 300_000 else f"{moment:%H:%M}"


def value_label(value: float | None, unit: Unit = "count") -> str:
    if value is None or not math.isfinite(value):
        return "–"
    if unit == "seconds":
        return _seconds(value)
    if unit == "bytes per second":
        return f"{_scaled(value, 1024, ('B', 'KiB', 'MiB', 'GiB', 'TiB'))}/s"
    text = _scaled(value, 1000, ("", "k", "M", "G", "T")).rstrip()
    return f"{text}/s" if unit == "per second" else text


def _seconds(value: float) -> str:
    if value == 0:
        return "0 s"
    if abs(value) < 1e-3:
        return f"{value * 1e6:.3g} µs"
    if abs(value) < 1:
        return f"{value * 1e3:.3g} ms"
    return f"{value:,.0f} s" if abs(value) >= 1000 else f"{value:.3g} s"


def _scaled(value: float, base: int, units: tuple[str, ...]) -> str:
    for unit in units:
        if abs(value) < base * 0.9995 or unit == units[-1]:
            return f"{value:,.0f} {unit}" if abs(value) >= 1000 else f"{value:.3g} {unit}"
        value /= base
    raise AssertionError("the last unit fits every value")
