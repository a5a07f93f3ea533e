""" "Did you mean" hints for mistyped names."""

from __future__ import annotations

from collections.abc import Iterable

CLOSE = 0.9
"""The minimum difflib ratio of two similar names: one wrong or missing letter in about ten."""


def nearest(name: str, choices: Iterable[str], cutoff: float = CLOSE) -> str | None:
    from difflib import get_close_matches  # costs time to import, and mistakes are rare

    return next(iter(get_close_matches(name, choices, 1, cutoff)), None)


def did_you_mean(name: str, choices: Iterable[str], cutoff: float = CLOSE) -> str:
    """``; did you mean NAME?``, or an empty string."""
    choice = nearest(name, choices, cutoff)
    return "" if choice is None else f"; did you mean {choice}?"
