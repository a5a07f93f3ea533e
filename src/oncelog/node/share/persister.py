"""The persister: the state of share partitions at its coordinator, whichever broker that is (KIP-932).

A request to this broker's own coordinator is a call; those to others share messages. After an error that may pass a
request is repeated, as by Apache Kafka's persister: sent five times in 30 seconds. It is repeated at once when another
broker begins to lead its coordinator's partition. The first request of a cluster makes ``__share_group_state``.

An initialization wipes what was acknowledged since an earlier one of its state epoch, and a deletion all. So neither is
sent any more once this broker has begun another one of that share partition; nor an initialization once the group's
next coordinator may have: ``group.share.initialize.retry.interval.ms`` after it was asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import NO_BROKER, NO_OFFSET, SHARE_GROUP_STATE, BrokerId, GroupId, LeaderEpoch, Offset
from oncelog.base.units import SECOND_MS
from oncelog.core.share.model import ShareState
from oncelog.core.share_state.model import (
    DeleteState,
    InitializeState,
    ReadState,
    ShareKey,
    StateReply,
    StateRequest,
    SummarizeState,
    WriteState,
)
from oncelog.handlers.broker.context import CoordinatorRefusal
from oncelog.handlers.broker.waits import CommitMetadata, Steps
from oncelog.node.brokers.messages import UNREACHABLE, BrokerMessages, Cancel, ChangeShareState, nothing_to_cancel
from oncelog.node.cluster.metadata import Metadata
from oncelog.node.cluster.metadata_log import MetadataLog
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.records.internal.share_state_records import NO_COUNT

MAX_ATTEMPTS: Final = 5
BACKOFF_MS: Final = SECOND_MS
"""Doubled with each failure: 2, 4, 8 and 16 seconds."""
RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
_OPERATIONS: Final[dict[type, str]] = {
    InitializeState: "initialize state",
    ReadState: "read state",
    WriteState: "write state",
    DeleteState: "delete state",
    SummarizeState: "read state summary",
}


class Persisted(NamedTuple):
    """The outcome of a change; ``message`` says why it failed."""

    error_code: ErrorCode
    message: str | None = None


class StateRead(NamedTuple):
    error_code: ErrorCode
    message: str | None = None
    state: ShareState | None = None
    """Without its delivery complete count (−1), which is not sent."""


class StateSummary(NamedTuple):
    """Epochs 0 and start offset −1: the share partition has no state."""

    error_code: ErrorCode
    message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_OFFSET
    delivery_complete_count: int = NO_COUNT


@dataclass(slots=True, eq=False)
class _Attempt:
    """A request and its failures."""

    request: StateRequest
    done: Callable[[StateReply], None] | None
    coordinator: BrokerId | None = None
    """The broker that it was sent to last."""
    lookups: int = 0
    """Failures to find a coordinator, in a row."""
    calls: int = 0
    """Failures of coordinators to answer."""
    last_ms: int | None = None
    """The time before which the request must be sent."""
    cancel: Cancel = field(default=nothing_to_cancel)
    """Ends the present attempt, or the pause before the next."""

    def may_be_sent(self, at_ms: int) -> bool:
        return self.last_ms is None or at_ms < self.last_ms

    def finish(self, reply: StateReply) -> None:
        done, self.done = self.done, None
        if done is not None:
            done(reply)


class SharePersister:
    """Each method calls ``done`` once, in the node's loop and perhaps before it returns. The result of a method cancels
    the call, not the change.
    """

    def __init__(
        self,
        messages: BrokerMessages,
        metadata: Metadata,
        commits: MetadataLog,
        deadlines: Deadlines,
        initialize_retry_ms: Callable[[GroupId], int],
    ) -> None:
        self._messages = messages
        self._metadata = metadata
        self._commits = commits
        self._deadlines = deadlines
        self._initialize_retry_ms = initialize_retry_ms
        # Requests that wait for the topic to be made, and those that wait to be repeated.
        self._until_topic: list[_Attempt] = []
        self._paused: dict[_Attempt, None] = {}
        # The initialization or deletion under way.
        self._resets: dict[ShareKey, _Attempt] = {}

    def initialize(
        self, key: ShareKey, state_epoch: int, start_offset: Offset, done: Callable[[Persisted], None]
    ) -> Cancel:
        return self._begin(InitializeState(key, state_epoch, start_offset), partial(_persisted, done))

    def read(self, key: ShareKey, leader_epoch: LeaderEpoch, done: Callable[[StateRead], None]) -> Cancel:
        """Read the state for a new leader, whose epoch fences earlier ones."""
        return self._begin(ReadState(key, leader_epoch), partial(_read, done))

    def write(
        self, key: ShareKey, leader_epoch: LeaderEpoch, state: ShareState, done: Callable[[Persisted], None]
    ) -> Cancel:
        """Merge the batches of ``state``, those that have changed, into the kept state."""
        request = WriteState(
            key, state.state_epoch, leader_epoch, state.start_offset, state.delivery_complete_count, state.batches
        )
        return self._begin(request, partial(_persisted, done))

    def delete(self, key: ShareKey, done: Callable[[Persisted], None]) -> Cancel:
        return self._begin(DeleteState(key), partial(_persisted, done))

    def summary(self, key: ShareKey, leader_epoch: LeaderEpoch, done: Callable[[StateSummary], None]) -> Cancel:
        return self._begin(SummarizeState(key, leader_epoch), partial(_summarized, done))

    def _begin(self, request: StateRequest, done: Callable[[StateReply], None]) -> Cancel:
        attempt = _Attempt(request, done)
        if isinstance(request, InitializeState | DeleteState):
            self._supersede(request.key)
            attempt.done = partial(self._reset, attempt, done)
            self._resets[request.key] = attempt
        if isinstance(request, InitializeState):
            attempt.last_ms = self._deadlines.now_ms + self._initialize_retry_ms(request.key.group_id)
        self._send(attempt)
        return partial(self._forget, attempt)

    def _supersede(self, key: ShareKey) -> None:
        earlier = self._resets.get(key)
        if earlier is not None:
            earlier.cancel()
            self._paused.pop(earlier, None)
            operation = _OPERATIONS[type(earlier.request)]
            message = f"Error in {operation} RPC. A later initialization or deletion has begun."
            earlier.finish(StateReply(ErrorCode.COORDINATOR_NOT_AVAILABLE, message))

    def _reset(self, attempt: _Attempt, done: Callable[[StateReply], None], reply: StateReply) -> None:
        del self._resets[attempt.request.key]
        done(reply)

    def _forget(self, attempt: _Attempt) -> None:
        if self._resets.get(attempt.request.key) is attempt:
            del self._resets[attempt.request.key]
        attempt.done = None
        attempt.cancel()
        self._paused.pop(attempt, None)

    def coordinators_changed(self) -> None:
        """Partitions of ``__share_group_state`` have other leaders: repeat the requests that wait for one."""
        for attempt in list(self._paused):
            if self._coordinator_of(attempt.request.key) not in (NO_BROKER, attempt.coordinator):
                attempt.cancel()
                self._send(attempt)

    def _send(self, attempt: _Attempt, _now_ms: int = 0) -> None:
        self._paused.pop(attempt, None)
        coordinator = attempt.coordinator = self._coordinator_of(attempt.request.key)
        if coordinator is None:
            self._until_topic.append(attempt)
            if len(self._until_topic) == 1:
                from oncelog.handlers.topics.creation import ensure_internal_topic

                self._create_topic(ensure_internal_topic(self._metadata, SHARE_GROUP_STATE))
        elif coordinator == NO_BROKER:
            self._not_found(attempt)
        else:
            message = ChangeShareState(attempt.request)
            attempt.cancel = self._messages.send(coordinator, message, partial(self._answered, attempt))

    def _coordinator_of(self, key: ShareKey) -> BrokerId | None:
        """NO_BROKER while the key's partition has no leader; None while there is no topic."""
        topic = self._metadata.image.topics.get(SHARE_GROUP_STATE)
        if topic is None or not topic.partitions:
            return None
        return topic.partitions[coordinator_partition(key.coordinator_key, len(topic.partitions))].leader

    def _create_topic(self, steps: Steps[ErrorCode], outcome: object = None) -> None:
        try:
            wait = steps.send(outcome)
        except StopIteration as end:
            waiting, self._until_topic = self._until_topic, []
            for attempt in waiting:
                if attempt.done is None:
                    continue
                if end.value is ErrorCode.NONE and attempt.may_be_sent(self._deadlines.now_ms):
                    self._send(attempt)
                else:
                    self._not_found(attempt)
            return
        if isinstance(wait, CommitMetadata):
            self._commits.commit(wait.operations, partial(self._create_topic, steps))
        else:  # the next part of a large topic
            self._deadlines.at(self._deadlines.now_ms, lambda _now_ms: self._create_topic(steps))

    def _not_found(self, attempt: _Attempt) -> None:
        attempt.lookups += 1
        if not self._sends_again(attempt, attempt.lookups):
            attempt.finish(
                StateReply(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    "Error in find coordinator. Exhausted max retries to find coordinator without success.",
                )
            )

    def _answered(self, attempt: _Attempt, answer: Any) -> None:
        reply = _reply(attempt.request, answer)
        if reply.error_code is ErrorCode.NONE:
            attempt.finish(reply)
            return
        operation = _OPERATIONS[type(attempt.request)]
        message = reply.message
        if reply.error_code in RETRIABLE:
            attempt.calls += 1
            if self._sends_again(attempt, attempt.calls):
                attempt.lookups = 0
                return
            message = f"Exhausted max retries to complete {operation} RPC without success."
        attempt.finish(StateReply(reply.error_code, f"Error in {operation} RPC. {message}"))

    def _sends_again(self, attempt: _Attempt, failures: int) -> bool:
        """Plan the next attempt. False if there is none."""
        if attempt.done is None:
            return True  # nobody waits for an outcome
        at_ms = self._deadlines.now_ms + (BACKOFF_MS << failures)
        if failures >= MAX_ATTEMPTS or not attempt.may_be_sent(at_ms):
            return False
        alarm = self._deadlines.at(at_ms, partial(self._send, attempt))
        self._paused[attempt] = None
        attempt.cancel = partial(self._deadlines.cancel, alarm)
        return True


def _reply(request: StateRequest, answer: Any) -> StateReply:
    if answer is UNREACHABLE:
        return StateReply(ErrorCode.NETWORK_EXCEPTION, "The server disconnected before a response was received.")
    if isinstance(answer, CoordinatorRefusal):
        from oncelog.handlers.share.state_messages import refused

        return refused(request, answer.error_code)
    assert isinstance(answer, StateReply)
    return answer


def _persisted(done: Callable[[Persisted], None], reply: StateReply) -> None:
    done(Persisted(reply.error_code, reply.message))


def _read(done: Callable[[StateRead], None], reply: StateReply) -> None:
    state = reply.state
    if state is None:
        done(StateRead(reply.error_code, reply.message))
        return
    read = ShareState(state.state_epoch, Offset(state.start_offset), NO_COUNT, state.batches)
    done(StateRead(ErrorCode.NONE, None, read))


def _summarized(done: Callable[[StateSummary], None], reply: StateReply) -> None:
    state = reply.state
    if state is None:
        done(StateSummary(reply.error_code, reply.message))
        return
    done(
        StateSummary(
            ErrorCode.NONE,
            None,
            state.state_epoch,
            state.leader_epoch,
            state.start_offset,
            state.delivery_complete_count,
        )
    )
