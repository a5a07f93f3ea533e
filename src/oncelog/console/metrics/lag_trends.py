"""How a group's lag changes: its speed over the last minutes, and the time to clear at that speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WINDOW_MS: Final = 300_000
MIN_SAMPLES: Final = 3
MIN_SPAN_MS: Final = 4_000
STEADY_SHARE: Final = 0.01  # A change by a smaller share of the lag within the window is noise.


@dataclass(frozen=True, slots=True)
class LagTrend:
    per_s: float  # Negative while the group catches up.
    clears_in_ms: int | None  # None unless it does.
    is_steady: bool


def trend_of(times: Sequence[int], lags: Sequence[float]) -> LagTrend | None:
    if not times:
        return None
    recent = [
        (time_ms, lag)
        for time_ms, lag in zip(times, lags, strict=True)
        if math.isfinite(lag) and time_ms >= times[-1] - WINDOW_MS
    ]
    if len(recent) < MIN_SAMPLES or recent[-1][0] - recent[0][0] < MIN_SPAN_MS:
        return None
    per_ms = _slope(recent)
    last, span_ms = recent[-1][1], recent[-1][0] - recent[0][0]
    is_steady = abs(per_ms) * span_ms < max(1.0, STEADY_SHARE * last)
    clears_in_ms = int(last / -per_ms) if last and per_ms < 0 and not is_steady else None
    return LagTrend(per_ms * 1000, clears_in_ms, is_steady)


def _slope(points: Sequence[tuple[int, float]]) -> float:
    # Of the line with the least squared distances.
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
