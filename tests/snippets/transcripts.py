"""Compares what a command printed with the transcript on a page.

An ellipsis stands for any text of its line, and alone on a line for any lines. Times, durations and addresses differ
from run to run and are not compared; lines may be wrapped elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import ndiff
from typing import Final

_VARYING: Final = {
    re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?: UTC|Z)?"): "(time)",
    re.compile(r"\b\d+(?:\.\d+)? (?:d|h|min|s|ms)\b(?: \d+ (?:h|min|s)\b)?"): "(age)",
    re.compile(r"\b[a-z][\w-]*:\d{4,5}\b|\b127\.0\.0\.1:\d+\b"): "(address)",
}
"""Texts that are not compared."""


def differences(expected: str, actual: str) -> str:
    """The lines in which an output differs from a transcript; empty if it does not."""
    pattern = _pattern(_plain(expected))
    if re.fullmatch(pattern, _plain(actual)):
        return ""
    return "\n".join(ndiff(expected.splitlines(), actual.splitlines()))


def _plain(text: str) -> str:
    for pattern, name in _VARYING.items():
        text = pattern.sub(name, text)
    return re.sub(r"\s+", " ", text).strip()


def _pattern(text: str) -> str:
    return ".*?".join(re.escape(part.strip()).replace(r"\ ", r"\s+") for part in text.split("…")).replace(
        ".*?", r"\s*.*?\s*"
    )


def commands(text: str) -> list[tuple[str, str]]:
    """The commands of a transcript, each with its output."""
    result: list[tuple[str, str]] = []
    lines: Sequence[str] = text.replace("\\\n", " ").splitlines()
    for line in lines:
        if line.startswith("$ "):
            result.append((line[2:], ""))
        elif result:
            command, output = result[-1]
            result[-1] = (command, f"{output}{line}\n")
    return result
