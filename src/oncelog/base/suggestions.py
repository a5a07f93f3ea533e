"""The name that a mistyped one was meant to be, for messages."""

from __future__ import annotations

from collections.abc import Iterable

CLOSE = 0.9
"""How alike two names are at least, by difflib's ratio: one wrong or missing letter in about ten."""


def nearest(name: str, known: Iterable[str], cutoff: float = CLOSE) -> str | None:
    """The known name that ``name`` is nearly; None if there is none."""
    from difflib import get_close_matches  # costs time to import, and mistakes are rare

    return next(iter(get_close_matches(name, known, 1, cutoff)), None)


def did_you_mean(name: str, known: Iterable[str], cutoff: float = CLOSE) -> str:
    """``; did you mean NAME?``, or nothing."""
    found = nearest(name, known, cutoff)
    return "" if found is None else f"; did you mean {found}?"
