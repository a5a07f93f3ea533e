"""Throttled replicas: who is named by a list, and the measure that is taken of their bytes."""

from __future__ import annotations

import pytest

from oncelog.core.quotas.rates import Windows
from oncelog.core.quotas.replication import ReplicationQuota, is_throttled_replica


@pytest.mark.parametrize(
    ("replicas", "named"),
    [
        ("", False),
        ("*", True),
        ("0:1,3:2", True),
        ("0:1, 3:2", True),
        ("3:1", False),
        ("2:3", False),
        ("13:2,3:22", False),
    ],
)
def test_a_list_names_a_replica(replicas: str, named: bool) -> None:
    assert is_throttled_replica(replicas, 3, 2) is named


def test_bytes_are_measured_over_the_time_since_they_began() -> None:
    quota = ReplicationQuota(Windows(11, 1000))
    assert not quota.is_exceeded(0, 0), "nothing is not more than nothing"
    quota.record(3000, 0)
    assert quota.measure(0) == 3000, "over a second at least"
    assert quota.is_exceeded(1000, 2900)
    assert not quota.is_exceeded(1000, 3000)
    for second in range(4, 40):
        quota.record(1000, second * 1000)
    assert 900 <= quota.measure(40_000) <= 1100
    assert quota.measure(60_000) == 0
    assert quota.total_bytes == 39_000
