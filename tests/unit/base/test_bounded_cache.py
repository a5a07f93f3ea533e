"""Results by key, bounded in bytes."""

from __future__ import annotations

import sys

import pytest

from oncelog.base.bounded_cache import LARGEST_SHARE, Memo, text_bytes


def test_all_are_forgotten_before_they_take_too_much() -> None:
    memo: Memo[str, int] = Memo(10 * LARGEST_SHARE)
    for number in range(LARGEST_SHARE):
        memo.remember(str(number), number, 10)
    assert (memo.get("0"), memo.get("511"), len(memo), memo.held_bytes) == (0, 511, 512, 5120)
    memo.remember("one more", 1, 10)
    assert (memo.get("0"), memo.get("one more"), len(memo), memo.held_bytes) == (None, 1, 1, 10)


def test_a_large_result_is_not_remembered_and_costs_no_other_its_place() -> None:
    memo: Memo[str, int] = Memo(10 * LARGEST_SHARE)
    memo.remember("a", 1, 10)
    memo.remember("b", 2, 11)
    assert (memo.get("a"), memo.get("b")) == (1, None)


@pytest.mark.parametrize("text", ["", "a" * 1000, "é" * 1000, "ж" * 1000, "🎈" * 1000])
def test_a_string_takes_no_more_than_is_said(text: str) -> None:
    assert sys.getsizeof(text) <= text_bytes(text) + 30
