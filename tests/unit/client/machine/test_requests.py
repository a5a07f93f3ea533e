"""Questions about offsets."""

from __future__ import annotations

import pytest

from oncelog.base.units import INT64_MAX
from oncelog.client.machine.requests import EARLIEST, offset_query


@pytest.mark.parametrize(
    ("time_ms", "timestamp"),
    [
        (0, 0),
        (5, 5),
        (INT64_MAX, INT64_MAX),
        (INT64_MAX + 1, INT64_MAX),
        *((time_ms, EARLIEST) for time_ms in range(-9, 0)),
    ],
)
def test_a_time_is_never_a_special_value(time_ms: int, timestamp: int) -> None:
    assert offset_query(time_ms) == timestamp
