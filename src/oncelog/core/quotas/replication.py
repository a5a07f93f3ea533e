"""How much of replication is throttled (KIP-73): which replicas, and whether their bytes are above the rate.

A topic names its throttled replicas as ``partition:broker``, or ``*`` for all. The rate is measured over windows; what
is above it waits until the measure has fallen. Only replicas that are not in sync are ever held back, so that no
acknowledgement waits for a throttle; their bytes count all the same.
"""

from __future__ import annotations

from typing import Final

from oncelog.core.quotas.rates import SimpleRate, Windows

ALL: Final = "*"


def is_throttled_replica(replicas: str, partition: int, broker_id: int) -> bool:
    """True if a topic's list names the replica of a partition on a broker."""
    if not replicas:
        return False
    replica = f"{partition}:{broker_id}"
    return any(part.strip() in (ALL, replica) for part in replicas.split(","))


class ReplicationQuota:
    """The bytes of throttled replicas on one side: those that a leader gives, or those that a follower takes."""

    def __init__(self, windows: Windows) -> None:
        self._rate = SimpleRate(windows)
        self.total_bytes = 0

    def record(self, size_bytes: int, now_ms: int) -> None:
        """Count bytes of throttled replicas."""
        self.total_bytes += size_bytes
        self._rate.record(size_bytes, now_ms)

    def is_exceeded(self, limit: int, now_ms: int) -> bool:
        """True while more than ``limit`` bytes a second are measured."""
        return self._rate.measure(now_ms) > limit

    def measure(self, now_ms: int) -> float:
        """Bytes a second."""
        return self._rate.measure(now_ms)
