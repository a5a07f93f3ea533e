"""Changes to the HTML of the theme that axe asks for: names of regions, levels of headings, the keyboard's reach."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_CHANGES: Final = (
    ('class="caption" role="heading"', 'class="caption" role="heading" aria-level="2"'),
    ('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="All pages">'),
    ('<aside class="toc-drawer">', '<aside class="toc-drawer" aria-label="This page">'),
    ("<pre>", '<pre tabindex="0">'),  # a block that scrolls sideways
    ('<th class="head"></th>', "<td></td>"),
    ('<th class="head"><p></p></th>', "<td></td>"),
)
"""Texts of the theme and of docutils, and their replacements."""
_PARAMETERS: Final = re.compile(r"<dl>\n(<dd>.*?)</dl>", re.DOTALL)
"""The parameters of a long signature: a list of definitions without terms."""


def improve(site: Path) -> None:
    """Make the changes on every page."""
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        for old, new in _CHANGES:
            text = text.replace(old, new)
        page.write_text(_PARAMETERS.sub(_as_lines, text), "utf-8")
    search = site / "search.html"
    search.write_text(search.read_text("utf-8").replace("<noscript>", "<h1>Search</h1><noscript>", 1), "utf-8")


def _as_lines(match: re.Match[str]) -> str:
    return match[1].replace("<dd>", '<div style="margin-left: 2em">').replace("</dd>", "</div>")
