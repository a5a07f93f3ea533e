"""Names of peers, cut to a length and still distinct."""

from __future__ import annotations

from oncelog.base.text import shortened


def test_short_names_stay_and_long_ones_stay_distinct() -> None:
    assert shortened("a" * 100, 100) == "a" * 100
    first, second = shortened("a" * 30_000, 100), shortened("a" * 30_001, 100)
    assert len(first) == len(second) == 100
    assert first != second
    assert first.startswith("a" * 75 + "…")
    assert len(shortened("\ud800" * 1000, 64)) == 64
