"""Differences that are known: `known_differences.txt`, a list that only shrinks.

A line there names a recording, an API and a field, under a reason that begins with `#`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_FILE: Final = Path(__file__).with_name("known_differences.txt")
_LINE: Final = re.compile(r"event \d+: (?P<api>\w+)(?: v\d+)?: (?P<what>[^:;]*)")
_SHOWN: Final = 20


def judge(recording: str, differences: Sequence[str]) -> None:
    """Fail (AssertionError) for differences of a recording that are not known, and for known ones that are gone."""
    known = _known().get(recording, set())
    unknown = [line for line in differences if _summary(line) not in known]
    assert not unknown, "\n".join(unknown[:_SHOWN])
    gone = known - {_summary(line) for line in differences}
    assert not gone, f"no longer differs, take it from {_FILE.name}: {sorted(gone)}"


def _known() -> dict[str, set[str]]:
    """Recording → what differs in it, as `API field`."""
    known: dict[str, set[str]] = {}
    for line in _FILE.read_text("utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            recording, text = line.split(None, 1)
            known.setdefault(recording, set()).add(text.strip())
    return known


def _summary(line: str) -> str:
    """A difference without numbers of events, versions, ids: what `known_differences.txt` names."""
    match = _LINE.match(line)
    if match is None:
        return line
    path = re.sub(r"\[[^\]]*\]", "", match["what"]).strip()
    return f"{match['api']} {path}"
