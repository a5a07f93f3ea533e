"""The client's remedy for each error code: give up, retry, or look something up and retry.

One literal table has the exceptions that Apache Kafka's clients call retriable; other codes are final. Backoff is
exponential with jitter (KIP-580), which is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from oncelog.base.errors import ErrorCode


class Remedy(Enum):
    FAIL = "the answer will not change"
    RETRY = "the same request to the same broker after a pause"
    REFRESH_METADATA = "look up the leaders (or the controller), then try again"
    FIND_COORDINATOR = "look up the coordinator, then try again"


_METADATA = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.LISTENER_NOT_FOUND,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NETWORK_EXCEPTION,
)
_SAME_BROKER = (
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
)
_COORDINATOR = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)

REMEDIES: Final[dict[int, Remedy]] = (
    {int(code): Remedy.REFRESH_METADATA for code in _METADATA}
    | {int(code): Remedy.RETRY for code in _SAME_BROKER}
    | {int(code): Remedy.FIND_COORDINATOR for code in _COORDINATOR}
)


def remedy(code: int) -> Remedy:
    """The remedy for an error code; FAIL for final and unknown ones."""
    return REMEDIES.get(code, Remedy.FAIL)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between attempts: doubling from ``initial_ms`` to ``max_ms``."""

    initial_ms: int
    max_ms: int

    def delay_ms(self, attempt: int, jitter_permille: int = 0) -> int:
        """The pause after attempt ``attempt`` (0-based), varied by −200 to 200 thousandths."""
        plain = min(self.initial_ms << min(attempt, 16), self.max_ms)
        return plain + plain * max(-200, min(jitter_permille, 200)) // 1000
