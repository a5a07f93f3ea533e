"""Throttles of replication (KIP-73) as a Fetch asks for them. Not an API."""

from __future__ import annotations

from typing import Final, Protocol

from oncelog.base.ids import TopicPartition


class ReplicationLimit(Protocol):
    """The throttle of what followers fetch from the partitions that are led here."""

    def holds_back(self, partition: TopicPartition, now_ms: int) -> bool:
        """True while a replica that is not in sync has to wait."""

    def record(self, partition: TopicPartition, size_bytes: int, now_ms: int) -> None:
        """Count bytes, if they are of a throttled replica."""


class NoLimit:
    """No throttle."""

    def holds_back(self, _partition: TopicPartition, _now_ms: int) -> bool:
        """Nobody waits."""
        return False

    def record(self, _partition: TopicPartition, _size_bytes: int, _now_ms: int) -> None:
        """Count nothing."""


NO_LIMIT: Final = NoLimit()
