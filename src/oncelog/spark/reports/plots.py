"""Plots of report rows: HTML without a library or script, PNG through matplotlib (``oncelog[plots]``).

Both outputs draw the same. Rows come from ``collect()``, or are dictionaries; ``MAX_POINTS`` at most, so that a whole
topic is not drawn by mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final, Literal

from oncelog.plotting.axes import value_label, value_ticks
from oncelog.plotting.svg import BLUE, GRID, INK, MUTED, PALE_BLUE, Drawing, heat_color
from oncelog.spark.session.errors import OptionError

MAX_POINTS: Final = 10_000
_WIDTH: Final = 760.0
_BAR: Final = 24.0
_STYLE: Final = (
    "body{margin:0 auto;max-width:860px;padding:32px 20px;font:15px/1.5 system-ui,sans-serif;color:#17222e}"
    "svg{width:100%;height:auto}h1{font-size:26px}h2{font-size:17px;margin:28px 0 6px}"
)


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart. ``points`` are (label, number) for bars and lines, (column, row, number) for a heat map."""

    kind: Literal["bars", "line", "heat"]
    title: str
    points: tuple[tuple[Any, ...], ...]
    unit: str = ""

    def svg(self) -> str:
        draw = {"bars": _bars, "line": _line, "heat": _heat}[self.kind]
        return draw(self).render(self.title)

    def html(self) -> str:
        """An HTML page with only this plot."""
        return page(self.title, [self])

    def png(self, path: str | Path, *, dots_per_inch: int = 120) -> None:
        """Write a PNG file. Raises OptionError without matplotlib."""
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError:
            raise OptionError("a PNG needs matplotlib: pip install 'oncelog[plots]'") from None
        figure = Figure(figsize=(7.6, 4.2), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        axes.set_title(self.title, loc="left")
        _on_axes(self, axes)
        figure.savefig(path, dpi=dots_per_inch)


def bars(rows: Iterable[Any], label: str, value: str, *, title: str, unit: str = "") -> Plot:
    """One horizontal bar per row, in their order."""
    return Plot("bars", title, _points(rows, label, value), unit)


def line(rows: Iterable[Any], at: str, value: str, *, title: str, unit: str = "") -> Plot:
    return Plot("line", title, _points(rows, at, value), unit)


def heat(rows: Iterable[Any], column: str, row: str, value: str, *, title: str, unit: str = "") -> Plot:
    """One coloured cell per row."""
    return Plot("heat", title, _points(rows, column, row, value), unit)


def page(title: str, plots: Sequence[Plot]) -> str:
    """A self-contained HTML page."""
    parts = "".join(f"<h2>{escape(plot.title)}</h2>{plot.svg()}" for plot in plots)
    head = f"<meta charset='utf-8'><title>{escape(title)}</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body><h1>{escape(title)}</h1>{parts}</body></html>"


def _points(rows: Iterable[Any], *names: str) -> tuple[tuple[Any, ...], ...]:
    points = []
    for row in rows:
        values: Mapping[str, Any] = row if isinstance(row, Mapping) else row.asDict()
        if values[names[-1]] is not None:
            points.append((*(str(values[name]) for name in names[:-1]), float(values[names[-1]])))
        if len(points) > MAX_POINTS:
            raise OptionError(f"a plot has at most {MAX_POINTS:,} rows: aggregate them first")
    return tuple(points)


def _bars(plot: Plot) -> Drawing:
    drawing = Drawing(_WIDTH, _BAR * max(1, len(plot.points)) + 8)
    highest = max((number for _, number in plot.points), default=0) or 1
    for index, (label, number) in enumerate(plot.points):
        y = 4 + index * _BAR
        width = max(0.0, number) / highest * 470
        drawing.text(196, y + 15, label[:30], anchor="end")
        drawing.box(204, y + 3, width, _BAR - 8, BLUE, title=f"{label}: {number:g} {plot.unit}")
        drawing.text(210 + width, y + 15, f"{number:,.6g} {plot.unit}".strip(), size=11, color=MUTED)
    return drawing


def _line(plot: Plot) -> Drawing:
    drawing = Drawing(_WIDTH, 240)
    left, right, top, bottom = 58.0, _WIDTH - 16, 14.0, 204.0
    numbers = [number for _, number in plot.points]
    ticks = value_ticks(max(numbers, default=0))
    lowest = min(0.0, *numbers) if numbers else 0.0

    def at(index: int, number: float) -> tuple[float, float]:
        x = left + (right - left) * index / max(1, len(numbers) - 1)
        return x, bottom - (bottom - top) * (number - lowest) / ((ticks[-1] - lowest) or 1)

    for tick in ticks:
        drawing.line(left, at(0, tick)[1], right, at(0, tick)[1], color=GRID)
        drawing.text(left - 8, at(0, tick)[1] + 4, value_label(tick), size=11, color=MUTED, anchor="end")
    points = [at(index, number) for index, number in enumerate(numbers)]
    if points:
        drawing.path([(points[0][0], at(0, 0)[1]), *points, (points[-1][0], at(0, 0)[1])], color="none", fill=PALE_BLUE)
        drawing.path(points, color=BLUE)
    for index in sorted({0, len(numbers) // 2, len(numbers) - 1}) if numbers else ():
        anchor = "start" if index == 0 else "end" if index == len(numbers) - 1 else "middle"
        drawing.text(points[index][0], bottom + 20, plot.points[index][0], size=11, color=MUTED, anchor=anchor)
    return drawing


def _heat(plot: Plot) -> Drawing:
    columns, rows = _axes_of(plot)
    width, height = (_WIDTH - 90) / max(1, len(columns)), 24.0
    drawing = Drawing(_WIDTH, height * len(rows) + 34)
    numbers = [number for *_, number in plot.points]
    for column, row, number in plot.points:
        x, y = 80 + columns.index(column) * width, 4 + rows.index(row) * height
        color = heat_color(number, min(numbers), max(numbers))
        drawing.box(x, y, width - 1, height - 1, color, title=f"{column}, {row}: {number:g} {plot.unit}")
    for index, row in enumerate(rows):
        drawing.text(72, 20 + index * height, row[:10], size=11, color=INK, anchor="end")
    for index, column in enumerate(columns):
        if index % max(1, len(columns) // 12) == 0:
            x = 80 + (index + 0.5) * width
            drawing.text(x, height * len(rows) + 20, column[:12], size=11, color=MUTED, anchor="middle")
    return drawing


def _axes_of(plot: Plot) -> tuple[list[str], list[str]]:
    return list(dict.fromkeys(point[0] for point in plot.points)), list(
        dict.fromkeys(point[1] for point in plot.points)
    )


def _on_axes(plot: Plot, axes: Any) -> None:
    if plot.kind == "heat":
        columns, rows = _axes_of(plot)
        field = [[float("nan")] * len(columns) for _ in rows]
        for column, row, number in plot.points:
            field[rows.index(row)][columns.index(column)] = number
        axes.figure.colorbar(axes.imshow(field, aspect="auto", cmap="coolwarm"), label=plot.unit)
        axes.set_xticks(range(len(columns)), columns, rotation=60, fontsize=7)
        axes.set_yticks(range(len(rows)), rows, fontsize=7)
        return
    labels, numbers = [point[0] for point in plot.points], [point[1] for point in plot.points]
    if plot.kind == "bars":
        axes.barh(range(len(labels)), numbers, color=BLUE)
        axes.set_yticks(range(len(labels)), labels, fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel(plot.unit)
        return
    axes.plot(range(len(labels)), numbers, color=BLUE)
    step = max(1, len(labels) // 8)
    axes.set_xticks(range(0, len(labels), step), labels[::step], rotation=30, fontsize=8)
    axes.set_ylabel(plot.unit)
