"""The causes that ``oncelog explain`` names, from the table of ``docs/explain.md``: a heading each, to be linked to."""

from __future__ import annotations

import re
from typing import Final

from codegen.site.pages import ROOT
from oncelog.admin.explain.findings import Cause

_ROW: Final = re.compile(r"^\| (`[^|]*`) \| (.*) \|$", re.MULTILINE)
_WITHOUT_ROW: Final = frozenset({Cause.IDLE, Cause.FINE})
"""Verdicts about a group that has nothing to read: no causes."""
_INTRODUCTION: Final = """# Causes

`oncelog explain`, the console and `--json` name a cause by these words; [Why is it stuck?](../explain.md) shows reports
with them, and [troubleshooting](../troubleshooting.md) leads from symptoms to them."""


def cause_names() -> list[str]:
    """The names of all causes that the page has."""
    return [cause.value for cause in Cause if cause not in _WITHOUT_ROW]


def page() -> str:
    """The page. Raises ValueError for a cause without a row in ``docs/explain.md``."""
    rows = _ROW.findall((ROOT / "docs" / "explain.md").read_text("utf-8"))
    meanings = {name: meaning for names, meaning in rows for name in re.findall(r"`([a-z-]+)`", names)}
    missing = [name for name in cause_names() if name not in meanings]
    if missing:
        raise ValueError(f"docs/explain.md has no row for {', '.join(missing)}: add one to its table of causes")
    sections = [f"## {name}\n\n{_from_folder(meanings[name])}." for name in cause_names()]
    return "\n\n".join([_INTRODUCTION, *sections])


def _from_folder(meaning: str) -> str:
    """A meaning with its links as they are from the folder of references."""
    return meaning.replace("](#", "](explain.md#").replace("](", "](../")
