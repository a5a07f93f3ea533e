"""The audit as one HTML page: totals, findings and a timeline, without scripts, fonts or external resources.

Every name read from a log (topic, group, transactional id) is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from oncelog.base.text import counted
from oncelog.plotting.columns import column_plot
from oncelog.spark.audit.model import Finding, Part
from oncelog.spark.audit.pipeline import BUCKETS, AuditResult
from oncelog.spark.audit.report import count_by_fate, fates_by_interval, meaning, size_text, time_text, totals

# The page is bounded by these limits: the audit of a terabyte makes a page as large as that of a megabyte.
MAX_ROWS: Final = 500
_COLUMNS: Final = ("partition", "offset", "transactional id", "producer", "epoch", "time", "what")
_NUMBERS: Final = ("offset", "producer", "epoch")

_STYLE: Final = """
:root{--ink:#1c2330;--soft:#5d6778;--line:#e3e7ee;--card:#fff;--ground:#f5f6f9;--commit:#2f9e6e;--abort:#c4862b;
--bad:#cf3f4f;--open:#4a7fd6;--none:#98a2b3}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ef;--soft:#98a2b3;--line:#2c3442;--card:#1a202b;--ground:#12161e;
--commit:#49b98a;--abort:#d9a04b;--bad:#ec6a78;--open:#7aa5ec;--none:#667085}}
*{box-sizing:border-box}body{margin:0;background:var(--ground);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1180px;margin:0 auto;padding:36px 24px 64px}h1{font-size:26px;margin:0 0 4px;letter-spacing:-.01em}
h2{font-size:17px;margin:36px 0 10px}p.sub{margin:0;color:var(--soft);overflow-wrap:anywhere}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(128px,1fr));gap:12px;margin:22px 0}
.card,.panel{background:var(--card);border:1px solid var(--line);border-radius:10px}.card{padding:12px 16px}
.card b{display:block;white-space:nowrap;font-size:22px;font-variant-numeric:tabular-nums}
.card span{color:var(--soft);font-size:13px}
.panel{padding:16px 18px;overflow-x:auto}.verdict{border-left:5px solid var(--bad);padding:14px 18px;font-size:16px}
.verdict.clean{border-color:var(--commit)}details{margin:10px 0}summary{cursor:pointer;padding:4px 0}
summary b{display:inline-block;min-width:3.2em;text-align:right;margin-right:.6em;color:var(--bad);
font-variant-numeric:tabular-nums}summary code{font-weight:600}summary span{color:var(--soft);margin-left:.6em}
code{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}table{border-collapse:collapse;width:100%;
font-size:13.5px;margin-top:8px}th{text-align:left;color:var(--soft);font-weight:500;padding:5px 12px 5px 0;
border-bottom:1px solid var(--line);white-space:nowrap}td{padding:6px 12px 6px 0;border-bottom:1px solid var(--line);
vertical-align:top;overflow-wrap:anywhere}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;
white-space:nowrap}td.t{white-space:nowrap;color:var(--soft);font-variant-numeric:tabular-nums}
.key{display:flex;flex-wrap:wrap;gap:16px;font-size:13px;color:var(--soft);margin:0 0 8px}
.key i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px;vertical-align:-1px}
svg{display:block;width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:var(--soft)}
svg .name{fill:var(--ink)}.committed{fill:var(--commit);background:var(--commit)}
.aborted{fill:var(--abort);background:var(--abort)}.torn,.hanging,.mark{fill:var(--bad);background:var(--bad)}
.open,.ending{fill:var(--open);background:var(--open)}.unknown{fill:var(--none);background:var(--none)}
.grid{stroke:var(--line)}footer{margin-top:40px;color:var(--soft);font-size:13px}
"""
WIDTH: Final = 1120
MAX_LANES: Final = 40
MAX_BARS: Final = 400
_LEFT: Final = 210
_RIGHT: Final = 12
_ROW: Final = 24
_TICKS: Final = 5
_FATES: Final = ("committed", "aborted", "open", "ending", "unknown", "torn", "hanging")
_GRAVE: Final = ("torn", "hanging")


def page(result: AuditResult) -> str:
    body = "".join((_head(result), _timelines(result), _findings(result), _foot(result)))
    return (
        # The policy forbids scripts and external resources even if an escape were missing.
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>Log audit</title><style>{_STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )


def _head(result: AuditResult) -> str:
    read = totals(result)
    numbers = count_by_fate(result)
    cards = [
        (f"{sum(numbers.values()):,}", "transactions × partitions"),
        *((f"{number:,}", fate) for fate, number in numbers.items()),
        (f"{read['records']:,}", "records"),
        (size_text(read["size_bytes"]), f"in {read['segments']:,} segments"),
        (f"{read['partitions']:,}", "partitions"),
    ]
    card_html = "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for value, name in cards
    )
    if result.finding_count:
        kinds = ", ".join(f"{number:,} {escape(kind)}" for kind, number in result.kinds.items())
        verdict = (
            f'<div class="panel verdict"><b>{counted(result.finding_count, "thing")} cannot be right:</b> {kinds}</div>'
        )
    else:
        verdict = '<div class="panel verdict clean"><b>No inconsistencies found.</b></div>'
    directories = ", ".join(result.directories)
    return (
        f'<h1>Log audit</h1><p class="sub">{escape(directories)}<br>as of {time_text(result.now_ms)}</p>'
        f'<div class="cards">{card_html}</div>{verdict}'
    )


def _timelines(result: AuditResult) -> str:
    if not result.tallies:
        return ""
    key = "".join(
        f'<span><i class="{css}"></i>{text}</span>'
        for css, text in (
            ("committed", "committed"),
            ("aborted", "aborted"),
            ("torn", "torn, hanging"),
            ("open", "open, ending"),
            ("unknown", "unknown (damage)"),
        )
    )
    parts = [f'<h2>Transactions over time</h2><div class="panel"><div class="key">{key}</div>{density(result)}</div>']
    chart = lanes(result)
    if chart:
        parts.append(f'<h2>Transactions that did not end well, by partition</h2><div class="panel">{chart}</div>')
    return "".join(parts)


def _findings(result: AuditResult) -> str:
    if not result.finding_count:
        return ""
    blocks = []
    for number, (kind, count) in enumerate(result.kinds.items()):
        listed = [finding for finding in result.findings if finding.kind == kind]
        rows = "".join(_rows(listed[:MAX_ROWS]))
        heads = "".join(f'<th class="{"n" if name in _NUMBERS else ""}">{name}</th>' for name in _COLUMNS)
        more = count - min(len(listed), MAX_ROWS)
        rest = f'<p class="sub">and {more:,} more: the Parquet files of --to have all of them</p>' if more > 0 else ""
        blocks.append(
            f"<details{' open' if number < 4 else ''}><summary><b>{count:,}</b><code>{escape(kind)}</code>"
            f"<span>{escape(meaning(kind))}</span></summary><table><tr>{heads}</tr>{rows}</table>{rest}</details>"
        )
    return f'<h2>Findings</h2><div class="panel">{"".join(blocks)}</div>'


def _rows(findings: Iterable[Finding]) -> Iterator[str]:
    for finding in findings:
        place = f"{finding.topic}-{finding.partition}" if finding.topic else finding.path
        path = f"<br><code>{escape(finding.path)}</code>" if finding.path and finding.topic else ""
        yield (
            f"<tr><td><code>{escape(place)}</code></td>{_number(finding.offset)}"
            f"<td>{escape(finding.transactional_id) or '–'}</td>{_number(finding.producer_id)}{_number(finding.epoch)}"
            f'<td class="t">{time_text(finding.time) if finding.time >= 0 else "–"}</td>'
            f"<td>{escape(finding.text)}{path}</td></tr>"
        )


def _number(value: int) -> str:
    return f'<td class="n">{value if value >= 0 else "–"}</td>'


def _foot(result: AuditResult) -> str:
    checks = "every batch's checksum was checked" if result.check_crc else "checksums were not checked"
    return (
        f"<footer>Made by oncelog audit in {result.seconds:.1f} s; {checks}. Times are UTC. A transaction counts once "
        "for each partition it wrote to.</footer>"
    )


class _Scale:
    def __init__(self, result: AuditResult) -> None:
        start, width = result.buckets
        self.start, self.span = start, max(1, width * BUCKETS)

    def x(self, time_ms: int) -> float:
        """The x coordinate of a time, clamped to the drawing."""
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * min(1.0, max(0.0, (time_ms - self.start) / self.span))

    def ticks(self, top: int, bottom: int) -> str:
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
    """A stacked column per interval; the boxes of torn and hanging transactions are always tall enough to see."""
    start, width = result.buckets
    title = "Transactions over time by fate"
    plot = column_plot(title, start, width, BUCKETS, fates_by_interval(result), _FATES, _GRAVE)
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
    """One lane per partition, one bar per torn, hanging, open or unknown transaction, findings as marks above."""
    bad = sorted(result.transactions, key=lambda part: (part.fate not in _GRAVE, part.topic, part.partition))[:MAX_BARS]
    marks = [finding for finding in result.findings if finding.topic and finding.time >= 0]
    names = list(dict.fromkeys((part.topic, part.partition) for part in bad))
    names += [place for place in dict.fromkeys((mark.topic, mark.partition) for mark in marks) if place not in names]
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
    drawn += [_bar(part, scale, rows[place]) for part in bad if (place := (part.topic, part.partition)) in rows]
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
