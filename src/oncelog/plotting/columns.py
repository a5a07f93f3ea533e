"""A plot of stacked columns over time: counts by kind. Serious kinds are always drawn tall enough to see."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from oncelog.plotting.axes import time_label, time_ticks, value_label, value_ticks
from oncelog.plotting.lines import Tick

WIDTH: Final = 1120
HEIGHT: Final = 190
LEFT: Final = 56
RIGHT: Final = 14
TOP: Final = 10
BOTTOM: Final = 24
_LEAST_HIGH: Final = 3.0


@dataclass(frozen=True, slots=True)
class Box:
    """A segment of a column: its kind, its place, and its label."""

    kind: str
    x: float
    y: float
    wide: float
    high: float
    title: str


@dataclass(frozen=True, slots=True)
class ColumnPlot:
    title: str
    boxes: tuple[Box, ...]
    kinds: tuple[str, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def column_plot(
    title: str,
    begin_ms: int,
    stretch_ms: int,
    stretches: int,
    columns: Sequence[tuple[int, Mapping[str, int]]],
    kinds: Sequence[str],
    grave: Collection[str],
) -> ColumnPlot:
    """The plot of ``columns``: the index of a time slot and its counts by kind, stacked in the order of ``kinds``."""
    ticks = value_ticks(max((sum(counts.values()) for _, counts in columns), default=0), whole=True)
    wide, high = (WIDTH - LEFT - RIGHT) / max(1, stretches), HEIGHT - TOP - BOTTOM
    span_ms = stretch_ms * max(1, stretches)
    boxes = []
    for number, column in columns:
        y = float(HEIGHT - BOTTOM)
        for kind in kinds:
            count = column.get(kind, 0)
            if count > 0 and 0 <= number < stretches:
                tall = max(high * count / ticks[-1], _LEAST_HIGH if kind in grave else 0.6)
                y = max(TOP, y - tall)
                time_text = time_label(begin_ms + number * stretch_ms, 1)
                rectangle = round(LEFT + number * wide, 1), round(y, 1), round(max(1.5, wide - 1), 1), round(tall, 1)
                boxes.append(Box(kind, *rectangle, f"{count:,} {kind} from {time_text}"))
    return ColumnPlot(
        title,
        tuple(boxes),
        tuple(kind for kind in kinds if any(column.get(kind) for _, column in columns)),
        tuple(
            Tick(round(LEFT + (WIDTH - LEFT - RIGHT) * (time_ms - begin_ms) / span_ms, 1), time_label(time_ms, span_ms))
            for time_ms in time_ticks(begin_ms, begin_ms + span_ms)
        ),
        tuple(Tick(round(TOP + high * (1 - value / ticks[-1]), 1), value_label(value)) for value in ticks),
    )
