"""The trend of a group's lag: catching up, falling behind, steady, and too little to say."""

from __future__ import annotations

import math

from oncelog.console.metrics.lag_trends import LagTrend, trend_of

TIMES = [number * 10_000 for number in range(40)]


def trend(*lags: float) -> LagTrend | None:
    return trend_of(TIMES[: len(lags)], lags)


def test_a_group_that_catches_up_clears_at_the_speed_of_the_last_minutes() -> None:
    catching_up = trend(1000, 900, 800, 700)
    assert catching_up == LagTrend(-10.0, 70_000, False)
    after_a_backlog = trend_of(TIMES, [0.0] * 5 + [7000.0 - 100 * number for number in range(35)])
    assert after_a_backlog is not None
    assert (round(after_a_backlog.per_s), after_a_backlog.clears_in_ms) == (-10, 360_000)


def test_growth_and_noise_never_clear() -> None:
    assert trend(0, 100, 200) == LagTrend(10.0, None, False)
    for lags in ((500, 500, 500), (10_000, 10_050, 9_990, 10_000), (0, 0, 0)):
        steady = trend(*lags)
        assert steady is not None
        assert (steady.is_steady, steady.clears_in_ms) == (True, None)


def test_gaps_and_few_samples_say_nothing() -> None:
    nan = math.nan
    assert trend() is None
    assert trend(5, 4) is None
    assert trend(5, nan, nan, 4) is None
    over_a_gap = trend(500, nan, 300, 200)
    assert over_a_gap is not None
    assert over_a_gap.clears_in_ms in (19_999, 20_000)
