"""Limits that handlers ask about: client quotas (how much a Fetch may take, whether partitions may be created or
deleted; KIP-599) and the throttle of replication (KIP-73).

All other quotas are the dispatcher's: it knows what a request and its answer took.
"""

from __future__ import annotations

from typing import Protocol

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.core.controller.outcomes import Refused
from oncelog.core.quotas.quotas import Charge


class Requester(Protocol):
    """The requester as a request's context has it."""

    principal: str
    client_id: str | None
    now_ms: int
    """Time of the event that is being handled."""
    spent_ns: int
    """Time that earlier requests took and that was not counted yet."""


class ClientLimits(Protocol):
    """The quotas of clients, as of the last change applied."""

    @property
    def enabled(self) -> bool:
        """False while no quota of users and client ids is set: nothing has to be counted."""

    def max_fetch_bytes(self, requester: Requester) -> int | None:
        """The bytes a Fetch may answer at most: more would be throttled for sure, and never get through."""

    def fetched(self, requester: Requester, size_bytes: int) -> int:
        """Count the answer of a Fetch, and the request's time. Not 0: not counted, nothing is to be given, and the
        client has to wait so many milliseconds."""

    def charge(self, requester: Requester, partitions: int, *, strict: bool) -> Charge:
        """Count partitions that are to be created or deleted (KIP-599)."""


class PartitionCharges:
    """The partitions that one request creates or deletes, each topic charged once however often it is decided on.

    Versions that know THROTTLING_QUOTA_EXCEEDED are refused with it once the bucket is overdrawn; older ones get what
    they ask for, and wait.
    """

    def __init__(self, limits: ClientLimits, requester: Requester, *, strict: bool) -> None:
        self._limits = limits
        self._requester = requester
        self._strict = strict
        self._charged: dict[object, bool] = {}
        self._throttle_ms = 0
        self._charged_ms = requester.now_ms

    def charge(self, topic: object, partitions: int) -> None:
        """Charge a topic. Raises Refused with THROTTLING_QUOTA_EXCEEDED."""
        if not self._limits.enabled:
            return
        taken = self._charged.get(topic)
        if taken is None:
            charge = self._limits.charge(self._requester, partitions, strict=self._strict)
            taken = self._charged[topic] = charge.taken
            if charge.throttle_ms:
                self._throttle_ms, self._charged_ms = charge.throttle_ms, self._requester.now_ms
        if not taken:
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")

    def throttle_ms(self) -> int:
        """The time for which the client still has to wait."""
        return max(0, self._throttle_ms - (self._requester.now_ms - self._charged_ms))


class ReplicationLimit(Protocol):
    """The throttle of what followers fetch from the partitions that are led here."""

    def holds_back(self, partition: TopicPartition, now_ms: int) -> bool:
        """True while a replica that is not in sync has to wait."""

    def record(self, partition: TopicPartition, size_bytes: int, now_ms: int) -> None:
        """Count bytes, if they are of a throttled replica."""
