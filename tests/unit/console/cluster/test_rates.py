"""Rates of topics: a window that is said, and none where something was deleted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncelog.console.cluster.rates import MAX_TOPICS, MAX_WINDOW_S, Rate, Rates
from tests.interop.admin.lab import at

ONE = at("t")


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


def looking(clock: list[float]) -> Callable[..., Rate]:
    rates = Rates(lambda: clock[0])

    def observe(at_s: float, end: int, size: int | None = 0, partition: int = 0) -> Rate:
        clock[0] = at_s
        return rates.observe("t", {at("t", partition): end} if partition == 0 else {ONE: end, at("t", 1): 0}, size)

    return observe


def test_a_rate_is_over_the_longest_window_there_is(clock: list[float]) -> None:
    observe = looking(clock)
    assert observe(0, 100, 1000) == Rate()
    assert observe(0.5, 100, 1000) == Rate(), "too short"
    assert observe(2, 120, 3000) == Rate(10.0, 1000.0, 2.0)
    assert observe(10, 200, 3000) == Rate(10.0, 200.0, 10.0)
    assert observe(10 + MAX_WINDOW_S, 200, 3000) == Rate(0.0, 0.0, MAX_WINDOW_S), "the first look is too old"


def test_what_went_down_gives_no_rate(clock: list[float]) -> None:
    observe = looking(clock)
    observe(0, 100, 1000)
    assert observe(5, 110, 500).bytes_per_s is None, "retention"
    assert observe(6, 5, 500) == Rate(), "another topic of the name"
    assert observe(8, 25, 500) == Rate(10.0, None, 2.0), "offsets came, the size has not moved"
    assert observe(9, 25, None, partition=1) == Rate(), "partitions were added"


def test_topics_that_nobody_looks_at_are_forgotten(clock: list[float]) -> None:
    rates = Rates(lambda: clock[0])
    for number in range(MAX_TOPICS + 1):
        rates.observe(f"t-{number}", {ONE: 1}, None)
    clock[0] = 5
    assert rates.observe("t-0", {ONE: 6}, None) == Rate()
    assert rates.observe(f"t-{MAX_TOPICS}", {ONE: 6}, None) == Rate(1.0, None, 5.0)
