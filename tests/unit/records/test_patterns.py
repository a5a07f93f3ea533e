"""Expressions of peers: what is matched, what is refused before it costs anything, and that none is remembered."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
import re2  # type: ignore[import-untyped]  # no types shipped

from oncelog.records.patterns import MAX_LENGTH, MAX_UNICODE_CLASSES, Pattern, PatternRefused


def test_a_whole_text_matches() -> None:
    pattern = Pattern(r"(?i)sl-\w+|é\pL")
    assert [pattern.matches(text) for text in ("SL-x", "sl-x!", "xsl-x", "éß", "é1")] == [
        True,
        False,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(
    "text",
    ["(", "a{2,1}", "(?=a)", r"(a)\1", "\ud800", "a" * (MAX_LENGTH + 1), r"\pL" * (MAX_UNICODE_CLASSES + 1), ".{500}"],
)
def test_what_is_wrong_or_large_is_refused(text: str) -> None:
    with pytest.raises(PatternRefused):
        Pattern(text)


def test_the_dearest_expressions_cost_milliseconds() -> None:
    """In processor time beside a fixed piece of work: 30 kB of classes took 1.2 s, with Python's lock held."""

    def cost(work: Callable[[], object]) -> float:
        started = time.thread_time()
        for _ in range(20):
            work()
        return time.thread_time() - started

    def piece() -> None:
        sum(range(50_000))

    def dearest() -> None:
        for text in ("(?i)" + r"\PL" * MAX_UNICODE_CLASSES, "(?i)" + r"\pL" * 10_000, "(?i)[^a]" * 60):
            with suppress(PatternRefused):
                Pattern(text)

    assert cost(dearest) < 40 * cost(piece)


def test_none_is_remembered() -> None:
    Pattern("a{3}")
    gc.collect()
    assert not re2._Regexp._make.cache_info().currsize
