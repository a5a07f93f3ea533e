"""Numbers with their nouns."""

from __future__ import annotations

from oncelog.base.text import counted


def test_one_is_singular_and_all_others_are_plural() -> None:
    assert [counted(number, "row") for number in (0, 1, 2, 2500)] == ["0 rows", "1 row", "2 rows", "2,500 rows"]
    assert [counted(number, "query", "queries") for number in (1, 3)] == ["1 query", "3 queries"]
