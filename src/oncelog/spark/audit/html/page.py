"""The audit as one HTML page: what was read, what was found, a timeline. No script, no font, nothing from elsewhere.

Everything that comes out of a log (names of topics, groups, transactional ids) is escaped. Bounded by what the result
lists: the page of a TB is as large as that of a MB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from oncelog.base.text import counted
from oncelog.spark.audit.html.timeline import density, lanes
from oncelog.spark.audit.model import Finding
from oncelog.spark.audit.pipeline import AuditResult
from oncelog.spark.audit.report import fates, meaning, size_text, time_text, totals

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


def page(result: AuditResult) -> str:
    """The whole document."""
    body = "".join((_head(result), _timelines(result), _findings(result), _foot(result)))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>Log audit</title><style>{_STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )


def _head(result: AuditResult) -> str:
    read = totals(result)
    numbers = fates(result)
    cards = [
        (f"{sum(numbers.values()):,}", "transactions × partitions"),
        *((f"{number:,}", fate) for fate, number in numbers.items()),
        (f"{read['records']:,}", "records"),
        (size_text(read["size_bytes"]), f"in {read['segments']:,} segments"),
        (f"{read['partitions']:,}", "partitions"),
    ]
    shown = "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for value, name in cards
    )
    if result.found:
        kinds = ", ".join(f"{number:,} {escape(kind)}" for kind, number in result.kinds.items())
        verdict = f'<div class="panel verdict"><b>{counted(result.found, "thing")} cannot be right:</b> {kinds}</div>'
    else:
        verdict = '<div class="panel verdict clean"><b>Nothing found that cannot be right.</b></div>'
    where = ", ".join(result.directories)
    return (
        f'<h1>Log audit</h1><p class="sub">{escape(where)}<br>as of {time_text(result.now_ms)}</p>'
        f'<div class="cards">{shown}</div>{verdict}'
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
    drawn = lanes(result)
    if drawn:
        parts.append(f'<h2>What has not ended well, and where</h2><div class="panel">{drawn}</div>')
    return "".join(parts)


def _findings(result: AuditResult) -> str:
    if not result.found:
        return ""
    blocks = []
    for number, (kind, count) in enumerate(result.kinds.items()):
        listed = [one for one in result.findings if one.kind == kind]
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
    for one in findings:
        place = f"{one.topic}-{one.partition}" if one.topic else one.path
        path = f"<br><code>{escape(one.path)}</code>" if one.path and one.topic else ""
        yield (
            f"<tr><td><code>{escape(place)}</code></td>{_number(one.offset)}"
            f"<td>{escape(one.transactional_id) or '–'}</td>{_number(one.producer_id)}{_number(one.epoch)}"
            f'<td class="t">{time_text(one.time) if one.time >= 0 else "–"}</td><td>{escape(one.text)}{path}</td></tr>'
        )


def _number(value: int) -> str:
    return f'<td class="n">{value if value >= 0 else "–"}</td>'


def _foot(result: AuditResult) -> str:
    checks = "every batch's checksum was checked" if result.check_crc else "checksums were not checked"
    return (
        f"<footer>Made by oncelog audit in {result.seconds:.1f} s; {checks}. Times are UTC. A transaction counts once "
        "for each partition it wrote to.</footer>"
    )
