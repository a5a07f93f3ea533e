"""The replication throttle (KIP-73): which replicas are throttled, and whether they exceed the rate.

A topic lists its throttled replicas as ``partition:broker``, or ``*`` for all. Replicas wait while the rate over
windows is exceeded. Only out-of-sync replicas are delayed, so that no acknowledgement waits, but the bytes of all
count.
"""

from __future__ import annotations

from typing import Final

from oncelog.core.quotas.rates import SimpleRate, Windows

ALL: Final = "*"


def is_throttled_replica(replicas: str, partition: int, broker_id: int) -> bool:
    # Fast path: topics rarely have throttled replicas.
    if not replicas:
        return False
    replica = f"{partition}:{broker_id}"
    return any(part.strip() in (ALL, replica) for part in replicas.split(","))


class ReplicationQuota:
    """The bytes of throttled replicas on one side, leader or follower."""

    def __init__(self, windows: Windows) -> None:
        self._rate = SimpleRate(windows)
        self.total_bytes = 0

    def record(self, size_bytes: int, now_ms: int) -> None:
        self.total_bytes += size_bytes
        self._rate.record(size_bytes, now_ms)

    def is_exceeded(self, limit: int, now_ms: int) -> bool:
        return self._rate.measure(now_ms) > limit

    def measure(self, now_ms: int) -> float:
        return self._rate.measure(now_ms)
