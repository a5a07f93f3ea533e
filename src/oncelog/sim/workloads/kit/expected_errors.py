"""Errors that a broker may answer to wrong requests; any other answer is a violation (S4)."""

from __future__ import annotations

from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.sim.workloads.kit.workload import WorkloadContext

PASSING: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""Errors that come from the state of the broker, to any request."""
FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
WRONG_ID: Final = frozenset({ErrorCode.INVALID_PRODUCER_ID_MAPPING})


def expect(context: WorkloadContext, what: str, code: int, *allowed: frozenset[ErrorCode]) -> None:
    """Object to any answer but these and those that pass."""
    if not any(code in one for one in (*allowed, PASSING)):
        context.object(f"{what}: answered {code}")
