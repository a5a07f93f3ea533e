"""Limits that handlers check: client quotas of Fetch, of topic creation and deletion (KIP-599), and the replication
throttle (KIP-73). The dispatcher checks all others: it knows the cost of request and response.
"""

from __future__ import annotations

from typing import Protocol

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.core.controller.outcomes import Refused
from oncelog.core.quotas.quotas import Charge


class Requester(Protocol):
    principal: str
    client_id: str | None
    now_ms: int
    """Time of the current event."""
    spent_ns: int
    """Uncounted time of earlier requests."""


class ClientLimits(Protocol):
    @property
    def enabled(self) -> bool:
        """False while no quota of users and client ids is set: nothing has to be counted."""

    def max_fetch_bytes(self, requester: Requester) -> int | None:
        """The most bytes of a Fetch response: a larger one would be throttled and never sent."""

    def fetched(self, requester: Requester, size_bytes: int) -> int:
        """Count a Fetch's response and time. Returns 0, or the milliseconds that the client has to wait; then nothing
        was counted and no records may be returned.
        """

    def returned(self, requester: Requester, size_bytes: int) -> int:
        """Count a response whose records are returned in any case, and its time. Returns the milliseconds that the
        client has to wait afterwards."""

    def charge(self, requester: Requester, partitions: int, *, strict: bool) -> Charge:
        """Charge partitions that are about to be created or deleted (KIP-599)."""


class PartitionCharges:
    """The partitions that a request creates or deletes; each topic is charged once, however often it is decided.

    ``strict``: the version knows THROTTLING_QUOTA_EXCEEDED, its refusal once the bucket is overdrawn. Older versions
    get what they ask for, and wait.
    """

    def __init__(self, limits: ClientLimits, requester: Requester, *, strict: bool) -> None:
        self._limits = limits
        self._requester = requester
        self._strict = strict
        self._charged: dict[object, bool] = {}
        self._throttle_ms = 0
        self._charged_ms = requester.now_ms

    def charge(self, topic: object, partitions: int) -> None:
        """Raises Refused with THROTTLING_QUOTA_EXCEEDED."""
        if not self._limits.enabled:
            return
        # Conflicts repeat the decision, but the charge stays.
        taken = self._charged.get(topic)
        if taken is None:
            charge = self._limits.charge(self._requester, partitions, strict=self._strict)
            taken = self._charged[topic] = charge.taken
            if charge.throttle_ms:
                self._throttle_ms, self._charged_ms = charge.throttle_ms, self._requester.now_ms
        if not taken:
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")

    def throttle_ms(self) -> int:
        return max(0, self._throttle_ms - (self._requester.now_ms - self._charged_ms))


class ReplicationLimit(Protocol):
    def holds_back(self, partition: TopicPartition, now_ms: int) -> bool:
        """True while an out-of-sync replica has to wait."""

    def record(self, partition: TopicPartition, size_bytes: int, now_ms: int) -> None: ...
