"""The page: one HTML file with everything in it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from oncelog.plotting.svg import Drawing

Row = dict[str, Any]

_STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #f3f5f8; color: #17222e; line-height: 1.5;
       font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 860px; margin: 0 auto; padding: 40px 20px 64px; }
h1 { font-size: 30px; line-height: 1.2; margin: 0 0 8px; letter-spacing: -.01em; }
.lead { color: #4b5763; margin: 0 0 26px; max-width: 66ch; }
.figures { display: grid; grid-template-columns: repeat(4, 1fr); gap: 12px; margin-bottom: 20px; }
.figure { background: #fff; border-radius: 10px; padding: 14px 16px; box-shadow: 0 1px 2px rgba(20, 35, 60, .07); }
.figure b { display: block; font-size: 22px; letter-spacing: -.01em; font-variant-numeric: tabular-nums; }
.figure span { color: #66727f; font-size: 13px; }
section { background: #fff; border-radius: 12px; padding: 22px 26px 20px; margin-top: 18px;
          box-shadow: 0 1px 2px rgba(20, 35, 60, .07); }
h2 { font-size: 18px; margin: 0 0 4px; }
section p { color: #4b5763; margin: 0 0 14px; max-width: 72ch; font-size: 14px; }
svg { display: block; width: 100%; height: auto; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 26px; }
h3 { font-size: 14px; margin: 0 0 8px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums; }
th { text-align: left; color: #66727f; font-weight: 500; border-bottom: 1px solid #dfe4ea; padding: 5px 10px 5px 0; }
td { border-bottom: 1px solid #eef1f4; padding: 5px 10px 5px 0; white-space: nowrap; }
td.number, th.number { text-align: right; }
.ok { color: #1d8a5b; font-weight: 600; } .bad { color: #cf2e3e; font-weight: 600; }
footer { color: #66727f; font-size: 13px; margin-top: 26px; }
.scroll { overflow-x: auto; }
@media (max-width: 700px) { .figures { grid-template-columns: repeat(2, 1fr); } .pair { grid-template-columns: 1fr; } }
"""


class Page:
    """Sections in order; ``render`` gives the file."""

    def __init__(self, title: str, lead: str) -> None:
        self._title = title
        self._parts = [f"<h1>{escape(title)}</h1><p class='lead'>{escape(lead)}</p>"]

    def figures(self, figures: Sequence[tuple[str, str]]) -> None:
        """Large numbers, each with what it is."""
        boxes = "".join(
            f"<div class='figure'><b>{escape(n)}</b><span>{escape(what)}</span></div>" for n, what in figures
        )
        self._parts.append(f"<div class='figures'>{boxes}</div>")

    def section(self, heading: str, text: str, *contents: str) -> None:
        """A heading, what is to be seen, and that."""
        self._parts.append(f"<section><h2>{escape(heading)}</h2><p>{escape(text)}</p>{''.join(contents)}</section>")

    def footer(self, text: str) -> None:
        """The last line."""
        self._parts.append(f"<footer>{escape(text)}</footer>")

    def render(self) -> str:
        """The whole page."""
        return (
            "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
            "<meta name='viewport' content='width=device-width, initial-scale=1'>"
            f"<title>{escape(self._title)}</title><style>{_STYLE}</style></head>"
            f"<body><main>{''.join(self._parts)}</main></body></html>\n"
        )


def chart(drawing: Drawing, label: str) -> str:
    """A drawing as part of a section."""
    return drawing.render(label)


def pair(*columns: tuple[str, str]) -> str:
    """Two contents side by side, each with a heading."""
    inside = "".join(f"<div><h3>{escape(heading)}</h3>{content}</div>" for heading, content in columns)
    return f"<div class='pair'>{inside}</div>"


def table(rows: Sequence[Row], headings: dict[str, str]) -> str:
    """Rows as a table; numbers to the right."""
    if not rows:
        return "<p>none</p>"
    numeric = {name: all(isinstance(row[name], (int, float, type(None))) for row in rows) for name in headings}
    kind = {name: " class='number'" if numeric[name] else "" for name in headings}
    head = "".join(f"<th{kind[name]}>{escape(text)}</th>" for name, text in headings.items())
    body = "".join(
        "<tr>" + "".join(f"<td{kind[name]}>{escape(shown(row[name]))}</td>" for name in headings) + "</tr>"
        for row in rows
    )
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def shown(value: Any) -> str:
    """A value as people read it."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.1f}".removesuffix(".0")
    return f"{value:,}" if isinstance(value, int) else str(value)
