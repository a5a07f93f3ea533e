"""The two drawings of the page, as SVG: transactions by time and fate, and those that did not end well by partition."""

from __future__ import annotations

from html import escape
from typing import Final

from oncelog.plotting.columns import column_plot
from oncelog.spark.audit.model import Part
from oncelog.spark.audit.pipeline import BUCKETS, AuditResult
from oncelog.spark.audit.report import time_text

WIDTH: Final = 1120
MAX_LANES: Final = 40
MAX_BARS: Final = 400
_LEFT: Final = 210
_RIGHT: Final = 12
_ROW: Final = 24
_TICKS: Final = 5
_FATES: Final = ("committed", "aborted", "open", "ending", "unknown", "torn", "hanging")
_GRAVE: Final = ("torn", "hanging")


class _Scale:
    """Times → x."""

    def __init__(self, result: AuditResult) -> None:
        start, width = result.buckets
        self.start, self.span = start, max(1, width * BUCKETS)

    def x(self, time_ms: int) -> float:
        """Clamped to the drawing."""
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * min(1.0, max(0.0, (time_ms - self.start) / self.span))

    def ticks(self, top: int, bottom: int) -> str:
        """Lines with their times below."""
        drawn = []
        for number in range(_TICKS + 1):
            time_ms = self.start + self.span * number // _TICKS
            x = self.x(time_ms)
            anchor = "start" if not number else "end" if number == _TICKS else "middle"
            drawn.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>')
            drawn.append(f'<text x="{x:.1f}" y="{bottom + 17}" text-anchor="{anchor}">{self._label(time_ms)}</text>')
        return "".join(drawn)

    def _label(self, time_ms: int) -> str:
        text = time_text(time_ms)
        if self.span < 5_000:
            return escape(text[11:23])
        return escape(text[11:19] if self.span < 86_400_000 else text[:16].replace("T", " "))


def density(result: AuditResult) -> str:
    """A stacked column for each stretch of time; grave fates are always high enough to be seen."""
    columns: dict[int, dict[str, int]] = {}
    for tally in result.tallies:
        bucket = min(BUCKETS - 1, max(0, tally.bucket))
        column = columns.setdefault(bucket, {})
        column[tally.fate] = column.get(tally.fate, 0) + tally.parts
    start, width = result.buckets
    title = "Transactions over time by fate"
    plot = column_plot(title, start, width, BUCKETS, sorted(columns.items()), _FATES, _GRAVE)
    drawn = [
        f'<line class="grid" x1="{plot.left}" x2="{plot.right}" y1="{tick.at}" y2="{tick.at}"/>'
        f'<text x="{plot.left - 6}" y="{tick.at + 4}" text-anchor="end">{tick.label}</text>'
        for tick in plot.y_ticks
    ]
    drawn += [
        f'<text x="{tick.at}" y="{plot.height - 6}" text-anchor="middle">{tick.label}</text>' for tick in plot.x_ticks
    ]
    drawn += [
        f'<rect class="{box.kind}" x="{box.x}" y="{box.y}" width="{box.wide}" height="{box.high}">'
        f"<title>{escape(box.title)}</title></rect>"
        for box in plot.boxes
    ]
    view = f"0 0 {plot.width} {plot.height}"
    return f'<svg viewBox="{view}" role="img" aria-label="{title}">{"".join(drawn)}</svg>'


def lanes(result: AuditResult) -> str:
    """A lane a partition, a bar a transaction that is torn, hanging, open or unknown; findings as marks above it."""
    bad = sorted(result.transactions, key=lambda one: (one.fate not in _GRAVE, one.topic, one.partition))[:MAX_BARS]
    marks = [one for one in result.findings if one.topic and one.time >= 0]
    names = list(dict.fromkeys((one.topic, one.partition) for one in bad))
    names += [place for place in dict.fromkeys((one.topic, one.partition) for one in marks) if place not in names]
    shown = sorted(names[:MAX_LANES])
    if not shown:
        return ""
    scale = _Scale(result)
    bottom = _ROW * len(shown) + 6
    rows = {place: number * _ROW + 6 for number, place in enumerate(shown)}
    drawn = [scale.ticks(0, bottom)]
    for (topic, partition), y in rows.items():
        name = f"{topic}-{partition}"
        short = name if len(name) <= 30 else f"…{name[-29:]}"
        drawn.append(
            f'<text class="name" x="{_LEFT - 12}" y="{y + 12}" text-anchor="end">{escape(short)}'
            f"<title>{escape(name)}</title></text>"
        )
        drawn.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y + 18}" y2="{y + 18}"/>')
    drawn += [_bar(one, scale, rows[place]) for one in bad if (place := (one.topic, one.partition)) in rows]
    for mark in marks[:MAX_BARS]:
        row = rows.get((mark.topic, mark.partition))
        if row is not None:
            x = scale.x(mark.time)
            title = escape(f"{mark.kind} at offset {mark.offset}: {mark.text}")
            drawn.append(f'<path class="mark" d="M{x:.1f} {row + 6}l4 -6h-8z"><title>{title}</title></path>')
    hidden = len(names) - len(shown)
    more = f'<p class="sub">and {hidden:,} more partitions</p>' if hidden > 0 else ""
    label = "Transactions that did not end well, by partition"
    return f'<svg viewBox="0 0 {WIDTH} {bottom + 24}" role="img" aria-label="{label}">{"".join(drawn)}</svg>{more}'


def _bar(part: Part, scale: _Scale, y: int) -> str:
    begin = scale.x(part.started if part.started >= 0 else part.ended)
    still = part.ended if part.ended >= 0 else scale.start + scale.span
    wide = max(4.0, scale.x(still) - begin)
    begin = min(begin, WIDTH - _RIGHT - wide)
    name = part.transactional_id or f"producer {part.producer_id}"
    title = escape(f"{name}, epoch {part.epoch}: {part.fate}, offsets {part.first_offset} to {part.last_offset}")
    place = f'x="{begin:.1f}" y="{y + 5}" width="{wide:.1f}" height="10" rx="3"'
    return f'<rect class="{part.fate}" {place}><title>{title}</title></rect>'
