"""A plot of lines over time. Values that are not finite are gaps in a line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from oncelog.plotting.axes import Unit, time_label, time_ticks, unit_base, value_label, value_ticks

WIDTH: Final = 440
HEIGHT: Final = 170
LEFT: Final = 58
RIGHT: Final = 32
TOP: Final = 10
BOTTOM: Final = 26
MOST_TIME_TICKS: Final = 5
SPARK_WIDTH: Final = 96
SPARK_HEIGHT: Final = 20
MOST_LINES: Final = 6
# Maximum points per line; more are averaged, to keep pages small.
MOST_POINTS: Final = 200
_GAP_STEPS: Final = 2.5
# Samples of a large or slow cluster come at uneven intervals: a shorter interval is never a gap.
_LEAST_GAP_MS: Final = 120_000


@dataclass(frozen=True, slots=True)
class Line:
    """A line: its values at the plot's times, NaN for gaps."""

    name: str
    values: Sequence[float]

    @property
    def last(self) -> float:
        return self.values[-1] if self.values else math.nan


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick's position in the drawing, and its label."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Drawn:
    """A drawn line: its name, the path's commands, and the latest value as text."""

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
    begin_ms: int
    end_ms: int
    highest: float
    # The value at the top.
    unit: Unit
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
        # For screen readers.
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
    """A plot of the first ``MOST_LINES`` lines between two times (milliseconds)."""
    begin, end = span
    visible_lines = lines[:MOST_LINES]
    highest = max((value for line in visible_lines for value in line.values if math.isfinite(value)), default=0.0)
    base = unit_base(highest) if unit == "bytes per second" else 1
    ticks = [base * tick for tick in value_ticks(highest / base, whole=unit == "count")]
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(time_ms: float) -> float:
        return LEFT + wide * (time_ms - begin) / max(1, end - begin)

    def y(value: float) -> float:
        return TOP + high * (1 - value / ticks[-1])

    drawn = []
    for line in visible_lines:
        points = thinned(times, line.values, MOST_POINTS)
        drawn.append(
            Drawn(line.name, path_of([(time_ms, x(time_ms), y(value)) for time_ms, value in points]), _last(line, unit))
        )
    return LinePlot(
        key,
        title,
        about,
        tuple(drawn),
        len(lines) - len(visible_lines),
        tuple(
            Tick(round(x(time_ms), 1), time_label(time_ms, end - begin))
            for time_ms in time_ticks(begin, end, MOST_TIME_TICKS)
        ),
        tuple(Tick(round(y(value), 1), value_label(value, unit)) for value in ticks),
        begin,
        end,
        ticks[-1],
        unit,
    )


@dataclass(frozen=True, slots=True)
class Sparkline:
    # A small line without axes, from 0 to its highest value. The path is empty without two values.
    path: str
    area: str
    width: int = SPARK_WIDTH
    height: int = SPARK_HEIGHT


def sparkline(times: Sequence[int], values: Sequence[float], most_points: int = 48) -> Sparkline:
    points = [(at, value) for at, value in thinned(times, values, most_points) if math.isfinite(value)]
    if len(points) < 2:
        return Sparkline("", "")
    width, height = SPARK_WIDTH, SPARK_HEIGHT
    (begin, _), (end, _) = points[0], points[-1]
    highest = max(value for _, value in points) or 1.0
    drawn = [
        f"{(at - begin) / max(1, end - begin) * width:.1f} {1 + (height - 2) * (1 - value / highest):.1f}"
        for at, value in points
    ]
    path = f"M{'L'.join(drawn)}"
    return Sparkline(path, f"{path}V{height}H0Z")


def _last(line: Line, unit: Unit) -> str:
    return "away" if line.values and math.isnan(line.last) else value_label(line.last, unit)


def thinned(times: Sequence[int], values: Sequence[float], maximum: int) -> list[tuple[float, float]]:
    """At most ``maximum`` points: each is the mean of neighbouring finite values, or a gap."""
    width = max(1, -(-len(values) // maximum))
    points = []
    for begin in range(0, len(values), width):
        values_averaged = [value for value in values[begin : begin + width] if math.isfinite(value)]
        times_averaged = times[begin : begin + width]
        points.append(
            (
                sum(times_averaged) / len(times_averaged),
                sum(values_averaged) / len(values_averaged) if values_averaged else math.nan,
            )
        )
    return points


def path_of(points: Sequence[tuple[float, float, float]]) -> str:
    """Path commands through (time, x, y). A gap starts a new part, and a single point is a dot."""
    intervals = sorted(point[0] - previous_point[0] for previous_point, point in pairwise(points))
    longest_interval = max(_LEAST_GAP_MS, intervals[len(intervals) // 2] * _GAP_STEPS) if intervals else 0.0
    commands: list[str] = []
    previous_ms: float | None = None
    for time_ms, x, y in points:
        if not math.isfinite(y):
            previous_ms = None
            continue
        is_joined = previous_ms is not None and time_ms - previous_ms <= longest_interval
        commands.append(f"{'L' if is_joined else 'M'}{x:.1f} {y:.1f}")
        if not is_joined:
            commands.append("h0")
        previous_ms = time_ms
    return "".join(commands)
