"""A broker without quotas and throttles, as its handlers see it."""

from __future__ import annotations

from typing import Final

from oncelog.base.ids import TopicPartition
from oncelog.core.quotas.quotas import Charge
from oncelog.handlers.broker.limits import Requester


class Unlimited:
    """No quotas."""

    enabled: Final = False

    def max_fetch_bytes(self, _requester: Requester) -> int | None:
        """No bound."""
        return None

    def fetched(self, _requester: Requester, _size_bytes: int) -> int:
        """Nobody waits."""
        return 0

    def charge(self, _requester: Requester, _partitions: int, *, strict: bool) -> Charge:
        """Nobody waits."""
        return Charge(True, 0)


UNLIMITED: Final = Unlimited()


class NoLimit:
    """No throttle."""

    def holds_back(self, _partition: TopicPartition, _now_ms: int) -> bool:
        """Nobody waits."""
        return False

    def record(self, _partition: TopicPartition, _size_bytes: int, _now_ms: int) -> None:
        """Count nothing."""


NO_LIMIT: Final = NoLimit()
