"""A plot of lines over time: points that are not numbers are gaps in a line, never joined over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from oncelog.plotting.axes import Unit, time_label, time_ticks, unit_base, value_label, value_ticks

WIDTH: Final = 640
HEIGHT: Final = 200
LEFT: Final = 64
RIGHT: Final = 14
TOP: Final = 10
BOTTOM: Final = 24
MOST_LINES: Final = 6
MOST_POINTS: Final = 200
"""Points of a line; more are averaged, so that a page stays small."""
_GAP_STEPS: Final = 2.5
_LEAST_GAP_MS: Final = 120_000
"""Looks at a large or slow cluster come in uneven steps: less than this between two of them is no gap."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line: the values at the plot's times, NaN where there is none."""

    name: str
    values: Sequence[float]

    @property
    def last(self) -> float:
        """The latest value, NaN if that is a gap."""
        return self.values[-1] if self.values else math.nan


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick at a place of the drawing, and its label."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Drawn:
    """A line as drawn: the path's commands, its name, and the latest value in words."""

    name: str
    path: str
    last: str


@dataclass(frozen=True, slots=True)
class LinePlot:
    key: str
    title: str
    about: str
    lines: tuple[Drawn, ...]
    left_out: int
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM

    @property
    def is_empty(self) -> bool:
        return not any(line.path for line in self.lines)

    @property
    def spoken(self) -> str:
        """The plot for those who do not see it."""
        now = ", ".join(f"{line.name}: {line.last}" for line in self.lines)
        return f"{self.title}. Now {now}" if now else f"{self.title}. Nothing yet"


def line_plot(
    key: str,
    title: str,
    times: Sequence[int],
    lines: Sequence[Line],
    span: tuple[int, int],
    unit: Unit = "count",
    about: str = "",
) -> LinePlot:
    """A plot of lines between two times (milliseconds); the first ``MOST_LINES`` of them."""
    begin, end = span
    shown = lines[:MOST_LINES]
    highest = max((value for one in shown for value in one.values if math.isfinite(value)), default=0.0)
    base = unit_base(highest) if unit == "bytes per second" else 1
    ticks = [base * tick for tick in value_ticks(highest / base, whole=unit == "count")]
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(time_ms: float) -> float:
        return LEFT + wide * (time_ms - begin) / max(1, end - begin)

    def y(value: float) -> float:
        return TOP + high * (1 - value / ticks[-1])

    drawn = []
    for one in shown:
        points = thinned(times, one.values, MOST_POINTS)
        drawn.append(Drawn(one.name, path_of([(at, x(at), y(value)) for at, value in points]), _last(one, unit)))
    return LinePlot(
        key,
        title,
        about,
        tuple(drawn),
        len(lines) - len(shown),
        tuple(Tick(round(x(at), 1), time_label(at, end - begin)) for at in time_ticks(begin, end)),
        tuple(Tick(round(y(value), 1), value_label(value, unit)) for value in ticks),
    )


def _last(line: Line, unit: Unit) -> str:
    return "away" if line.values and math.isnan(line.last) else value_label(line.last, unit)


def thinned(times: Sequence[int], values: Sequence[float], most: int) -> list[tuple[float, float]]:
    """At most ``most`` points; each is the mean of its neighbours that are numbers, or a gap if none of them is."""
    width = max(1, -(-len(values) // most))
    found = []
    for begin in range(0, len(values), width):
        piece = [value for value in values[begin : begin + width] if math.isfinite(value)]
        stretch = times[begin : begin + width]
        found.append((sum(stretch) / len(stretch), sum(piece) / len(piece) if piece else math.nan))
    return found


def path_of(points: Sequence[tuple[float, float, float]]) -> str:
    """Commands of a path through (time, x, y); it begins anew after a gap, and a point alone is a dot."""
    steps = sorted(after[0] - before[0] for before, after in pairwise(points))
    widest = max(_LEAST_GAP_MS, steps[len(steps) // 2] * _GAP_STEPS) if steps else 0.0
    parts: list[str] = []
    previous: float | None = None
    for at, x, y in points:
        if not math.isfinite(y):
            previous = None
            continue
        joined = previous is not None and at - previous <= widest
        parts.append(f"{'L' if joined else 'M'}{x:.1f} {y:.1f}")
        if not joined:
            parts.append("h0")
        previous = at
    return "".join(parts)
