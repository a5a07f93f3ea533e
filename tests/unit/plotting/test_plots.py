"""Plots: round ticks, gaps that stay gaps, columns that can be seen."""

from __future__ import annotations

import math

import pytest

from oncelog.plotting.axes import time_label, time_ticks, value_label, value_ticks
from oncelog.plotting.columns import column_plot
from oncelog.plotting.lines import MOST_POINTS, Line, line_plot, path_of, thinned

NAN = math.nan
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("highest", "whole", "ticks"),
    [
        (0, True, [0, 1]),
        (NAN, False, [0, 1]),
        (3, True, [0, 1, 2, 3]),
        (1, True, [0, 1]),
        (0.9, False, [0, 0.5, 1.0]),
        (100, True, [0, 50, 100]),
        (17_000, True, [0, 5000, 10_000, 15_000, 20_000]),
    ],
)
def test_ticks_of_values_are_round_and_reach_the_highest(highest: float, whole: bool, ticks: list[float]) -> None:
    assert value_ticks(highest, whole=whole) == pytest.approx(ticks)


@pytest.mark.parametrize("span_ms", [1, 10_000, HOUR_MS, 86_400_000, 400 * 86_400_000, 40_000 * 86_400_000])
def test_ticks_of_times_are_few(span_ms: int) -> None:
    ticks = time_ticks(1_000_000_000_123, 1_000_000_000_123 + span_ms)
    assert len(ticks) <= 8
    assert all(1_000_000_000_123 <= tick <= 1_000_000_000_123 + span_ms for tick in ticks)


def test_labels() -> None:
    assert time_label(0, HOUR_MS) == "00:00"
    assert time_label(1000, 1) == "00:00:01"
    assert time_label(0, 400 * 86_400_000) == "1970-01-01"
    assert time_label(2**62, 1) == str(2**62)
    message = [(0, "count"), (999, "count"), (1500, "per second"), (2**20, "bytes per second"), (1e16, "count")]
    assert [value_label(one, unit) for one, unit in message] == [  # type: ignore[arg-type]
        *("0", "999", "1.5 k/s", "1 MiB/s", "10,000 T")
    ]
    assert [value_label(item, "seconds") for item in (0, 2e-6, 0.0123, 3, 5000)] == [
        *("0 s", "2 µs", "12.3 ms", "3 s", "5,000 s")
    ]
    assert value_label(None) == value_label(NAN) == "–"


def test_a_gap_is_not_joined_over() -> None:
    points = [(0.0, 0.0, 1.0), (10.0, 1.0, 2.0), (20.0, 2.0, NAN), (30.0, 3.0, 3.0), (40.0, 4.0, 4.0)]
    assert path_of(points) == "M0.0 1.0h0L1.0 2.0M3.0 3.0h0L4.0 4.0"
    late = [(0.0, 0.0, 1.0), (10_000.0, 1.0, 2.0), (20_000.0, 2.0, 2.0), (60_000.0, 3.0, 3.0)]
    assert path_of(late).count("M") == 1, "a look that came later"
    assert path_of([*late, (200_000.0, 9.0, 9.0)]).count("M") == 2, "nothing was sampled in between"
    assert path_of([]) == ""


def test_many_points_are_thinned_and_gaps_stay() -> None:
    times = list(range(1000))
    values = [NAN if 500 <= item < 600 else float(item) for item in times]
    result = thinned(times, values, MOST_POINTS)
    assert len(result) == MOST_POINTS
    assert sum(math.isnan(value) for _, value in result) == 20


def test_a_plot_says_its_latest_values_and_what_it_leaves_out() -> None:
    lines = [Line(f"<{number}>", [1.0, 2.0 * number]) for number in range(8)]
    plot = line_plot("k", "Records", [0, 1000], [Line("away", [1.0, NAN]), *lines], (0, HOUR_MS), "per second")
    assert (len(plot.lines), plot.left_out, plot.is_empty) == (6, 3, False)
    assert plot.spoken.startswith("Records. Now away: away, <0>: 0/s, <1>: 2/s")
    rates = line_plot("k", "Bytes", [0], [Line("b", [70_000.0])], (0, HOUR_MS), "bytes per second")
    assert [tick.label for tick in rates.y_ticks] == ["0 B/s", "20 KiB/s", "40 KiB/s", "60 KiB/s", "80 KiB/s"]
    empty = line_plot("k", "Records", [], [], (0, HOUR_MS))
    assert (empty.is_empty, empty.spoken) == (True, "Records. Nothing yet")


def test_columns_stand_on_each_other_and_grave_ones_are_seen() -> None:
    columns = [(0, {"committed": 100_000, "hanging": 1}), (5, {"aborted": 50_000}), (999, {"committed": 1})]
    plot = column_plot("T", 0, 1000, 10, columns, ("committed", "aborted", "hanging"), ("hanging",))
    assert [box.kind for box in plot.boxes] == ["committed", "hanging", "aborted"]
    low, grave, _ = plot.boxes
    assert grave.high == 3
    assert grave.y == pytest.approx(low.y - 3)
    assert all(plot.top <= box.y <= plot.bottom and box.x < plot.right for box in plot.boxes)
    assert plot.kinds == ("committed", "aborted", "hanging")
