"""The history: bounded in moments and in series, with gaps where nothing was said."""

from __future__ import annotations

import math

from oncelog.console.metrics.history import History


def test_the_last_moments_are_kept_with_gaps() -> None:
    history = History(3)
    for moment in range(5):
        history.add(moment * 1000, {("a", ""): moment} | ({("b", ""): 9.0} if moment != 3 else {}))
    times, series = history.since(0)
    assert times == [2000, 3000, 4000]
    assert series["a", ""] == [2, 3, 4]
    assert [math.isnan(item) for item in series["b", ""]] == [False, True, False]
    assert history.since(3500)[0] == [4000]
    assert History(3).since(0) == ([], {})


def test_a_silent_series_makes_room_and_a_speaking_one_does_not() -> None:
    history = History(4, most_series=2)
    history.add(0, {("a", ""): 1, ("b", ""): 1, ("c", ""): 1})
    assert (history.left_out, set(history.since(0)[1])) == (1, {("a", ""), ("b", "")})
    history.add(1, {("a", ""): 1})
    history.add(2, {("a", ""): 1, ("c", ""): 1})
    assert set(history.since(0)[1]) == {("a", ""), ("c", "")}
