"""The checks of a request to a share coordinator, in Apache Kafka's order and with its messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicId
from oncelog.core.share_state.model import (
    DeleteState,
    InitializeState,
    ReadState,
    StateReply,
    StateRequest,
    SummarizeState,
    WriteState,
)

MESSAGES: Final[dict[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "The server experienced an unexpected error when processing the request.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.FENCED_LEADER_EPOCH: "The leader epoch in the request is older than the epoch on the broker.",
    ErrorCode.FENCED_STATE_EPOCH: "The coordinator rejected the request because the state epoch did not match.",
}
_NEGATIVE: Final = "The {} cannot be a negative number."
_UNINITIALIZED: Final = "{} operation on uninitialized share partition not allowed."


class Fences(Protocol):
    """The epochs of a share partition below which requests are refused."""

    @property
    def leader_epoch(self) -> int: ...

    @property
    def state_epoch(self) -> int: ...


def refusal(
    request: StateRequest, fences: Fences | None, partition_count: Callable[[TopicId], int]
) -> StateReply | None:
    """The error to answer, or None. ``fences``: None for a share partition without state."""
    if request.key.partition < 0:
        return _invalid(_NEGATIVE.format("partition id"))
    refused = _refusal_of_kind(request, fences)
    if refused is None and request.key.partition >= partition_count(request.key.topic_id):
        refused = _error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return refused


def _refusal_of_kind(request: StateRequest, fences: Fences | None) -> StateReply | None:
    match request:
        case InitializeState():
            if request.state_epoch < 0:
                return _invalid(_NEGATIVE.format("state epoch"))
            return _fenced_state(request.state_epoch, fences)
        case ReadState():
            if request.leader_epoch < 0:
                return _invalid(_NEGATIVE.format("leader epoch"))
            if fences is None:
                return _invalid(_UNINITIALIZED.format("Read"))
            return _fenced_leader(request.leader_epoch, fences)
        case WriteState():
            return _refusal_of_write(request, fences)
        case DeleteState() | SummarizeState():
            return None


def _refusal_of_write(request: WriteState, fences: Fences | None) -> StateReply | None:
    if request.leader_epoch < 0:
        return _invalid(_NEGATIVE.format("leader epoch"))
    if request.state_epoch < 0:
        return _invalid(_NEGATIVE.format("state epoch"))
    if fences is None:
        return _invalid(_UNINITIALIZED.format("Write"))
    fenced = _fenced_leader(request.leader_epoch, fences) or _fenced_state(request.state_epoch, fences)
    if fenced is None and any(batch.last_offset < batch.first_offset for batch in request.batches):
        # Apache Kafka writes them, and fails at the next merge.
        return _invalid("A state batch ends before it begins.")
    return fenced


def _fenced_leader(leader_epoch: int, fences: Fences) -> StateReply | None:
    return _error(ErrorCode.FENCED_LEADER_EPOCH) if leader_epoch < fences.leader_epoch else None


def _fenced_state(state_epoch: int, fences: Fences | None) -> StateReply | None:
    is_fenced = fences is not None and state_epoch < fences.state_epoch
    return _error(ErrorCode.FENCED_STATE_EPOCH) if is_fenced else None


def _error(error_code: ErrorCode) -> StateReply:
    return StateReply(error_code, MESSAGES[error_code])


def _invalid(message: str) -> StateReply:
    return StateReply(ErrorCode.INVALID_REQUEST, message)
