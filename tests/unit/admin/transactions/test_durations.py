"""Durations and moments as sentences have them."""

from __future__ import annotations

import pytest

from oncelog.admin.transactions.durations import duration_text, moment_text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (12_345, "12 s"),
        (60_000, "1 min"),
        (185_000, "3 min 5 s"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_durations(milliseconds: int, text: str) -> None:
    assert duration_text(milliseconds) == text


def test_a_moment_no_calendar_has() -> None:
    assert moment_text(10**18) == f"{10**18} ms after 1970"
