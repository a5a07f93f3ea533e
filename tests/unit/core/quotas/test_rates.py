"""The arithmetic beside Apache Kafka's own classes, whose answers stand in ``kafka_figures.txt``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.core.quotas.rates import MAX_THROTTLE_MS, Rate, TokenBucket, Windows, rounded_ms

FIGURES = Path(__file__).with_name("kafka_figures.txt")
SECOND = Windows()


def _series() -> Iterator[tuple[str, Windows, float, list[list[str]]]]:
    """Each series of the table: its kind, windows and bound, and its lines: time, value, measured, throttle time."""
    for part in FIGURES.read_text("utf-8").split("\n\n")[1:]:
        head, *lines = part.splitlines()
        kind, samples, size_s, bound = head.split()
        yield kind, Windows(int(samples), int(size_s) * 1000), float(bound), [line.split() for line in lines]


@pytest.mark.parametrize(
    ("windows", "bound", "lines"), [(item[1], item[2], item[3]) for item in _series() if item[0] == "rate"]
)
def test_a_rate_is_what_apache_kafka_measures(windows: Windows, bound: float, lines: list[list[str]]) -> None:
    rate = Rate(windows)
    for now_ms, value, measured, throttle_ms, *unrecorded in lines:
        rate.record(int(value), int(now_ms))
        assert rate.measure(int(now_ms)) == pytest.approx(float(measured), rel=1e-12)
        assert rate.throttle_ms(bound, int(now_ms)) == int(throttle_ms)
        if unrecorded:
            rate.record(-int(value), int(now_ms))


@pytest.mark.parametrize(
    ("windows", "bound", "lines"), [(item[1], item[2], item[3]) for item in _series() if item[0] == "bucket"]
)
def test_a_bucket_holds_what_apache_kafkas_does(windows: Windows, bound: float, lines: list[list[str]]) -> None:
    bucket = TokenBucket(windows)
    for now_ms, value, tokens, throttle_ms in lines:
        bucket.record(int(value), bound, int(now_ms))
        assert bucket.measure(bound, int(now_ms)) == pytest.approx(float(tokens), abs=1e-9)
        assert bucket.throttle_ms(bound, int(now_ms)) == int(throttle_ms)


def test_the_first_second_counts_as_ten() -> None:
    rate = Rate(SECOND)
    rate.record(1000, 50_000)
    assert rate.measure(50_000) == 100


def test_an_idle_rate_is_as_a_new_one() -> None:
    used, new = Rate(SECOND), Rate(SECOND)
    for at_ms in range(0, 30_000, 170):
        used.record(5000, at_ms)
    later_ms = 30_000 - 170 + SECOND.span_ms + 1000
    assert used.is_idle(later_ms)
    for rate in (used, new):
        rate.record(7, later_ms)
    assert used.measure(later_ms) == new.measure(later_ms)


def test_a_full_bucket_is_as_a_new_one() -> None:
    used, new = TokenBucket(SECOND), TokenBucket(SECOND)
    used.record(70, 5, 1000)
    assert not used.is_full(5, 2000)
    assert used.is_full(5, 20_000)
    assert used.measure(5, 20_000) == new.measure(5, 20_000)


@pytest.mark.parametrize(
    ("milliseconds", "rounded"),
    [
        (0.4, 0),
        (0.5, 1),
        (1.5, 2),
        (-0.5, 0),
        (float("nan"), 0),
        (float("inf"), MAX_THROTTLE_MS),
        (1e300, MAX_THROTTLE_MS),
    ],
)
def test_milliseconds_are_rounded_as_java_rounds(milliseconds: float, rounded: int) -> None:
    assert rounded_ms(milliseconds) == rounded
