"""Share state of a group's partitions, made and deleted by their share coordinators. Not an API."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, LeaderEpoch, TopicId
from oncelog.core.share_state.model import DeleteState, InitializeState, ShareKey, SummarizeState
from oncelog.handlers.broker.waits import PersistShareStates, Steps
from oncelog.handlers.groups.requests import ask

if TYPE_CHECKING:
    from oncelog.core.groups.share.decision import PartitionState


TEXTS: Final = {
    ErrorCode.UNSUPPORTED_VERSION: "The version of API is not supported.",
    ErrorCode.INVALID_GROUP_ID: "The group id is invalid.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and hence can't process requests.",
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
    ErrorCode.LEADER_NOT_AVAILABLE: "There is no leader for this topic-partition as we are in the middle of a "
    "leadership election.",
    ErrorCode.NETWORK_EXCEPTION: "The server disconnected before a response was received.",
    ErrorCode.REQUEST_TIMED_OUT: "The request timed out.",
    ErrorCode.FENCED_STATE_EPOCH: "The coordinator rejected the request because the state epoch did not match.",
    ErrorCode.UNKNOWN_SERVER_ERROR: "The server experienced an unexpected error when processing the request.",
}
"""Apache Kafka's texts, which its tools print."""


_UNCERTAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors after which state may have been made all the same."""


class _Summary(Protocol):
    @property
    def error_code(self) -> ErrorCode: ...

    @property
    def state_epoch(self) -> int: ...


class Outcome(Protocol):
    """The outcome of a share coordinator's work."""

    @property
    def error_code(self) -> ErrorCode: ...

    @property
    def message(self) -> str | None: ...


def persist(requests: Sequence[InitializeState | DeleteState | SummarizeState]) -> Steps[Sequence[Any]]:
    """The outcome of each request. They are sent in slices, none of which waits for the answers of another."""
    wait = PersistShareStates(requests, ends_with_client=all(isinstance(each, SummarizeState) for each in requests))
    while (outcomes := (yield wait)) is None:
        pass
    return outcomes  # type: ignore[no-any-return]


def initialize(group_id: GroupId, states: Sequence[PartitionState]) -> Steps[Sequence[Outcome]]:
    """Make the state of partitions, and tell the group's coordinator. Returns the outcome of each."""
    outcomes: Sequence[Outcome] = yield from persist(
        [
            InitializeState(ShareKey(group_id, state.topic, state.partition), state.state_epoch, state.start_offset)
            for state in states
        ]
    )
    errors = [outcome.error_code for outcome in outcomes]
    done = _by_topic(state for state, error in zip(states, errors, strict=True) if error is ErrorCode.NONE)
    uncertain = _by_topic(state for state, error in zip(states, errors, strict=True) if error in _UNCERTAIN)
    failed = _by_topic(
        state
        for state, error in zip(states, errors, strict=True)
        if error is not ErrorCode.NONE and error not in _UNCERTAIN
    )
    fenced = [s for s, error in zip(states, errors, strict=True) if error is ErrorCode.FENCED_STATE_EPOCH]
    fenced_by = yield from _highest_epoch(group_id, fenced)
    # An outcome that cannot be stored is found out again: the partitions are still marked as initializing.
    yield from ask(
        group_id,
        lambda shard, token, now_ms: shard.share.initialized(group_id, done, failed, uncertain, fenced_by),
        ErrorCode,
    )
    return outcomes


def _highest_epoch(group_id: GroupId, states: Sequence[PartitionState]) -> Steps[int]:
    """The highest state epoch that share coordinators know of the partitions; 0 if they know none."""
    if not states:
        return 0
    summaries: Sequence[_Summary] = yield from persist(
        [SummarizeState(ShareKey(group_id, state.topic, state.partition), LeaderEpoch(0)) for state in states]
    )
    return max(summary.state_epoch if summary.error_code is ErrorCode.NONE else 0 for summary in summaries)


def delete(group_id: GroupId, states: Sequence[PartitionState]) -> Steps[dict[TopicId, ErrorCode]]:
    """Delete the state of partitions. Returns an error, or NONE, for each topic."""
    outcomes: Sequence[Outcome] = yield from persist(
        [DeleteState(ShareKey(group_id, state.topic, state.partition)) for state in states]
    )
    topics = dict.fromkeys(state.topic for state in states)
    # Only now: a request that is repeated would delete the state that a new member has got meanwhile.
    yield from ask(group_id, lambda shard, token, now_ms: shard.share.deletion_ended(group_id, topics), ErrorCode)
    errors: dict[TopicId, ErrorCode] = {}
    for state, outcome in zip(states, outcomes, strict=True):
        if errors.get(state.topic, ErrorCode.NONE) is ErrorCode.NONE:
            errors[state.topic] = outcome.error_code
    return errors


def _by_topic(states: Iterable[PartitionState]) -> dict[TopicId, frozenset[int]]:
    topics: dict[TopicId, set[int]] = {}
    for state in states:
        topics.setdefault(state.topic, set()).add(state.partition)
    return {topic: frozenset(partitions) for topic, partitions in topics.items()}
