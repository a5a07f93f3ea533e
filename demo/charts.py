"""The demonstration's charts: each takes report rows and returns a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from demo.cluster import Survived
from demo.processes import Loaded
from oncelog.plotting.axes import value_label, value_ticks
from oncelog.plotting.svg import BLUE, GREEN, GRID, INK, MUTED, ORANGE, PALE_BLUE, RED, Drawing, heat_color

Row = dict[str, Any]

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def load_chart(first: Loaded, visible: int, second: Loaded, total: int, width: float = 760) -> Drawing:
    """Rows in the table over time: a load, its death, what readers saw, the next load."""
    drawing = Drawing(width, 300)
    left, right, top, bottom = 58.0, width - 22, 26.0, 258.0
    seconds = first.seconds + second.seconds
    ticks = value_ticks(total)

    def x(at: float) -> float:
        return left + (right - left) * at / seconds

    def y(rows: float) -> float:
        return bottom - (bottom - top) * rows / ticks[-1]

    for tick in ticks:
        drawing.line(left, y(tick), right, y(tick))
        drawing.text(left - 8, y(tick) + 4, value_label(tick), size=11, color=MUTED, anchor="end")
    for tick in value_ticks(seconds, steps=6):
        if tick <= seconds:
            drawing.text(x(tick), bottom + 18, f"{tick:g} s", size=11, color=MUTED, anchor="middle")
    drawing.box(x(first.seconds), top, right - x(first.seconds), bottom - top, "#f6f9fe", corner=0)
    for tick in ticks:
        drawing.line(x(first.seconds), y(tick), right, y(tick))
    path = [(x(0), y(0)), *_stairs([(at, rows) for at, rows in first.committed], 0, x, y)]
    path.append((x(first.seconds), y(visible)))
    later = [(first.seconds + at, visible + rows) for at, rows in second.committed]
    rest = [(x(first.seconds), y(visible)), *_stairs(later, visible, x, y), (x(seconds), y(total))]
    drawing.path([*path, (x(first.seconds), bottom), (x(0), bottom)], color="none", fill=PALE_BLUE)
    drawing.path([*rest, (x(seconds), bottom), (x(first.seconds), bottom)], color="none", fill="#d8efe4")
    drawing.path(path, color=BLUE, width=2.5)
    drawing.path(rest, color=GREEN, width=2.5)
    drawing.line(x(first.seconds), top - 8, x(first.seconds), bottom, color=RED, width=1.5, dashes="4 3")
    drawing.dot(x(first.seconds), y(visible), 5, RED)
    drawing.text(x(first.seconds) - 8, top + 4, "SIGKILL", size=12, color=RED, anchor="end", bold=True)
    drawing.text(x(first.seconds) - 8, top + 19, f"{visible:,} rows visible", size=11, color=MUTED, anchor="end")
    drawing.text(x(first.seconds) + 8, top + 4, "run again", size=12, color=GREEN, bold=True)
    drawing.text(right, y(total) - 8, f"{total:,} rows, each once", size=12, color=INK, anchor="end", bold=True)
    drawing.line(left, bottom, right, bottom, color=MUTED)
    drawing.text(left, 290, "rows that a plain spark.read.parquet sees, over time", size=11, color=MUTED)
    return drawing


def pause_chart(survived: Survived, width: float = 760) -> Drawing:
    """Events acknowledged per second around the kill of a leader: on the partitions it led, and on the others."""
    drawing = Drawing(width, 250)
    left, right, top, bottom = 58.0, width - 22, 26.0, 206.0
    begin, end = survived.killed_at - _BEFORE_S, survived.killed_at + _AFTER_S
    others = [index for index in range(len(survived.times)) if index not in survived.moved]
    rates = [_rates(survived, of, begin, end) for of in (others, survived.moved)]
    ticks = value_ticks(max((max(rate) for rate in rates), default=1) or 1)

    def x(at: float) -> float:
        return left + (right - left) * (at - begin) / (end - begin)

    def y(rate: float) -> float:
        return bottom - (bottom - top) * rate / ticks[-1]

    for tick in ticks:
        drawing.line(left, y(tick), right, y(tick))
        drawing.text(left - 8, y(tick) + 4, value_label(tick), size=11, color=MUTED, anchor="end")
    for second in range(-int(_BEFORE_S), int(_AFTER_S) + 1):
        at = x(survived.killed_at + second)
        drawing.text(at, bottom + 18, f"{second:+d} s", size=11, color=MUTED, anchor="middle")
    for rate, color in zip(rates, (BLUE, ORANGE), strict=True):
        drawing.path([(x(begin + (number + 0.5) * _BIN_S), y(value)) for number, value in enumerate(rate)], color=color)
    killed = x(survived.killed_at)
    drawing.line(killed, top - 8, killed, bottom, color=RED, width=1.5, dashes="4 3")
    drawing.text(
        killed - 8, top + 4, f"SIGKILL of broker {survived.killed}", size=12, color=RED, anchor="end", bold=True
    )
    drawing.text(killed + 8, top + 4, f"{survived.pause * 1000:,.0f} ms", size=12, color=INK, bold=True)
    drawing.line(left, bottom, right, bottom, color=MUTED)
    drawing.text(left, 242, "events acknowledged a second:", size=11, color=MUTED)
    drawing.text(left + 170, 242, "partitions of the killed leader", size=11, color=ORANGE, bold=True)
    drawing.text(left + 360, 242, "the others", size=11, color=BLUE, bold=True)
    return drawing


_BEFORE_S, _AFTER_S, _BIN_S = 2.0, 3.0, 0.1


def _rates(survived: Survived, partitions: Sequence[int], begin: float, end: float) -> list[float]:
    """Acknowledgements a second on some partitions, in bins of time."""
    bins = [0] * round((end - begin) / _BIN_S)
    for partition in partitions:
        for at in survived.times[partition]:
            if begin <= at < end:
                bins[min(int((at - begin) / _BIN_S), len(bins) - 1)] += 1
    return [count / _BIN_S for count in bins]


def _stairs(points: Sequence[tuple[float, int]], start: int, x: Any, y: Any) -> list[tuple[float, float]]:
    """Rows appear at once when a step is committed, not in between."""
    stairs: list[tuple[float, float]] = []
    for at, rows in points:
        stairs += [(x(at), y(start)), (x(at), y(rows))]
        start = rows
    return stairs


def heat_map(hours: Sequence[Row], width: float = 760) -> Drawing:
    """Mean departure delay by month and hour of the day in New York."""
    drawing = Drawing(width, 330)
    left, top, shown = 44.0, 24.0, range(5, 24)
    cell_width, cell_height = (width - left - 8) / len(shown), 21.0
    by_cell = {(row["month"], row["hour"]): row for row in hours}
    highest = 35.0
    for hour in shown:
        if hour % 2:
            at = left + (hour - shown[0] + 0.5) * cell_width
            drawing.text(at, top - 8, f"{hour}:00", size=10.5, color=MUTED, anchor="middle")
    for month, name in enumerate(MONTHS, 1):
        drawing.text(left - 8, top + (month - 0.3) * cell_height, name, size=11, color=MUTED, anchor="end")
        for hour in shown:
            row = by_cell.get((month, hour))
            color = "#f7f8f9" if row is None else heat_color(row["mean_delay"], 0, highest)
            title = (
                "" if row is None else f"{name} {hour}:00: {row['mean_delay']} min, {row['departures']:,} departures"
            )
            x, y = left + (hour - shown[0]) * cell_width, top + (month - 1) * cell_height
            drawing.box(x + 1, y + 1, cell_width - 2, cell_height - 2, color, title=title)
    base = top + 12 * cell_height + 22
    for index in range(7):
        drawing.box(left + index * 30, base, 28, 10, heat_color(index + 0.5, 0, 7))
    drawing.text(left, base + 25, "0", size=10.5, color=MUTED)
    drawing.text(left + 208, base + 25, f"{highest:.0f} min and more", size=10.5, color=MUTED, anchor="end")
    drawing.text(
        left + 226, base + 9, "mean departure delay by month and scheduled hour, New York", size=11, color=MUTED
    )
    return drawing


def route_bars(routes: Sequence[Row], width: float = 370) -> Drawing:
    """The routes most flown."""
    return _bars([(row["route"], row["flights"], f"{row['flights']:,}") for row in routes], width, BLUE, 92)


def carrier_bars(carriers: Sequence[Row], names: dict[str, str], width: float = 370) -> Drawing:
    """Carriers by departures, with the share that left on time."""
    rows = [
        (_short_name(names.get(row["carrier"]) or str(row["carrier"])), row["flights"], f"{row['on_time_percent']:g} %")
        for row in carriers[:10]
    ]
    return _bars(rows, width, ORANGE, 120)


def _short_name(name: str) -> str:
    for ending in (" Inc.", " Co.", " Corporation", " Airlines", " Air Lines", " Airways"):
        shorter = name.removesuffix(ending)
        name = shorter if len(shorter) > 3 else name
    return name


def _bars(rows: Sequence[tuple[str, float, str]], width: float, color: str, label: float) -> Drawing:
    drawing = Drawing(width, 24.0 * len(rows) + 6)
    highest = max(value for _, value, _ in rows)
    for index, (name, value, note) in enumerate(rows):
        y = 24.0 * index
        drawing.text(label - 8, y + 16, name, size=11.5, anchor="end")
        drawing.box(label, y + 4, (width - label - 62) * value / highest, 16, color, corner=3)
        drawing.text(label + (width - label - 62) * value / highest + 7, y + 16, note, size=11, color=MUTED)
    return drawing


def day_chart(days: Sequence[Row], alerts: Sequence[Row], width: float = 760) -> Drawing:
    """Mean departure delay day by day; days with an alert are marked."""
    drawing = Drawing(width, 236)
    left, right, top, bottom = 44.0, width - 12, 14.0, 196.0
    ticks = value_ticks(max(row["mean_delay"] for row in days))
    new_year = date(2013, 1, 1)

    def x(day: str) -> float:
        return left + (right - left) * (date.fromisoformat(day) - new_year).days / 365

    def y(delay: float) -> float:
        return bottom - (bottom - top) * max(0.0, delay) / ticks[-1]

    for tick in ticks:
        drawing.line(left, y(tick), right, y(tick), color=GRID)
        drawing.text(left - 8, y(tick) + 4, f"{tick:g}", size=11, color=MUTED, anchor="end")
    for month, name in enumerate(MONTHS, 1):
        drawing.text(x(date(2013, month, 15).isoformat()), bottom + 18, name, size=11, color=MUTED, anchor="middle")
    points = [(x(row["day"]), y(row["mean_delay"])) for row in days]
    drawing.path([(points[0][0], bottom), *points, (points[-1][0], bottom)], color="none", fill=PALE_BLUE)
    drawing.path(points, color=BLUE, width=1.5)
    alerted = {row["hour"][:10] for row in alerts}
    for row in days:
        if row["day"] in alerted:
            title = f"{row['day']}: mean delay {row['mean_delay']} min"
            drawing.dot(x(row["day"]), y(row["mean_delay"]), 3.5, RED, title=title)
    drawing.text(left, 228, "mean departure delay per day, minutes", size=11, color=MUTED)
    drawing.dot(left + 250, 224, 3.5, RED)
    drawing.text(left + 260, 228, "days with an hour over 90 minutes on average", size=11, color=MUTED)
    return drawing


def poster(load: Drawing, hours: Drawing, routes: Drawing, carriers: Drawing, headline: str) -> str:
    """The picture for the README."""
    drawing = Drawing(800, 1062)
    drawing.box(0, 0, 800, 1062, "#ffffff", corner=12)
    drawing.text(20, 38, "A year of flights, loaded exactly once", size=21, bold=True)
    drawing.text(20, 61, headline, size=12.5, color=MUTED)
    drawing.place(load, 20, 78)
    drawing.text(20, 418, "Operational monitoring", size=15, bold=True)
    drawing.place(hours, 20, 434)
    drawing.text(20, 796, "Routes by departures", size=15, bold=True)
    drawing.place(routes, 20, 810)
    drawing.text(412, 796, "Carriers by departures, share on time", size=15, bold=True)
    drawing.place(carriers, 412, 810)
    return drawing.render("A year of flights, loaded exactly once")
