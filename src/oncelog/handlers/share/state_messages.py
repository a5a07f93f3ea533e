"""Requests about states of share partitions as messages of APIs 83 to 87, and back. Not an API.

A partition named twice in a message is handled twice, and the last reply answers both, as in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from oncelog.base.errors import ErrorCode, error_code_of
from oncelog.base.ids import GroupId, LeaderEpoch, Offset, TopicId
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
from oncelog.records.internal.share_state_records import SnapshotValue, StateBatch
from oncelog.wire.message import Request, Response
from oncelog.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)

OPERATIONS: Final[dict[type, str]] = {
    InitializeState: "initialize share group state",
    ReadState: "read share group state",
    WriteState: "write share group state",
    DeleteState: "delete share group state",
    SummarizeState: "read share group state summary",
}
_REASONS: Final = {
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and hence can't process requests.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.UNKNOWN_SERVER_ERROR: "The server experienced an unexpected error when processing the request.",
}

SharePartition = tuple[bytes, int]
"""A topic's id and a partition: what identifies a reply within one message."""


class _Form(NamedTuple):
    """How one kind of request is written. A message has topics with partitions, its response likewise."""

    message: Callable[..., Request[Any]]
    topic: Callable[..., Any]
    partition: Callable[[Any], Any]
    """The fields of a partition in the message, from a request."""
    request: Callable[[ShareKey, Any], StateRequest]
    """The request, from its key and those fields."""
    response: Callable[..., Response]
    topic_result: Callable[..., Any]
    result: Callable[[int, StateReply], Any]
    state: Callable[[Any], SnapshotValue | None]
    """The state that a result without an error has."""


def refused(request: StateRequest, error_code: ErrorCode) -> StateReply:
    """The reply of a coordinator that cannot decide."""
    reason = _REASONS.get(error_code, error_code.name)
    return StateReply(error_code, f"Unable to {OPERATIONS[type(request)]}: {reason}")


def requests_of(message: Any) -> list[StateRequest]:
    form = _FORMS[type(message)]
    return [
        form.request(ShareKey(GroupId(message.group_id), TopicId(topic.topic_id), fields.partition), fields)
        for topic in message.topics
        for fields in topic.partitions
    ]


def message_of(requests: Sequence[StateRequest]) -> Request[Any]:
    """The message with all requests, which are of one kind and one group."""
    form = _FORMS[type(requests[0])]
    topics: dict[bytes, list[Any]] = {}
    for request in requests:
        topics.setdefault(request.key.topic_id, []).append(form.partition(request))
    return form.message(
        group_id=requests[0].key.group_id,
        topics=[form.topic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()],
    )


def response_to(message: Any, replies: Mapping[SharePartition, StateReply]) -> Any:
    form = _FORMS[type(message)]
    topics: dict[bytes, list[Any]] = {}
    for (topic_id, partition), reply in replies.items():
        topics.setdefault(topic_id, []).append(form.result(partition, reply))
    return form.response(
        results=[form.topic_result(topic_id=topic_id, partitions=results) for topic_id, results in topics.items()]
    )


def replies_in(kind: type, response: Any) -> dict[SharePartition, StateReply]:
    """The replies to requests of a kind."""
    form = _FORMS[kind]
    return {
        (topic.topic_id, result.partition): StateReply(
            error_code_of(result.error_code), result.error_message, None if result.error_code else form.state(result)
        )
        for topic in response.results
        for result in topic.partitions
    }


def _batches(batches: Iterable[Any]) -> tuple[StateBatch, ...]:
    return tuple(
        [
            StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
            for batch in batches
        ]
    )


def _read_result(partition: int, reply: StateReply) -> read_share_group_state.PartitionResult:
    result = read_share_group_state.PartitionResult(
        partition=partition, error_code=reply.error_code, error_message=reply.message
    )
    if reply.state is not None:
        result.state_epoch, result.start_offset = reply.state.state_epoch, reply.state.start_offset
        result.state_batches = [
            read_share_group_state.StateBatch(
                first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
            )
            for first, last, state, count in reply.state.batches
        ]
    return result


def _summary_result(partition: int, reply: StateReply) -> read_share_group_state_summary.PartitionResult:
    result = read_share_group_state_summary.PartitionResult(
        partition=partition, error_code=reply.error_code, error_message=reply.message
    )
    if reply.state is not None:
        state = reply.state
        result.state_epoch, result.leader_epoch, result.start_offset = (
            state.state_epoch,
            state.leader_epoch,
            state.start_offset,
        )
        result.delivery_complete_count = state.delivery_complete_count
    return result


def _write_fields(request: WriteState) -> write_share_group_state.PartitionData:
    return write_share_group_state.PartitionData(
        partition=request.key.partition,
        state_epoch=request.state_epoch,
        leader_epoch=request.leader_epoch,
        start_offset=request.start_offset,
        delivery_complete_count=request.delivery_complete_count,
        state_batches=[
            write_share_group_state.StateBatch(
                first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
            )
            for first, last, state, count in request.batches
        ],
    )


def _plain_result(partition_result: Callable[..., Any]) -> Callable[[int, StateReply], Any]:
    return lambda partition, reply: partition_result(
        partition=partition, error_code=reply.error_code, error_message=reply.message
    )


def _no_state(_result: Any) -> None:
    return None


_INITIALIZE: Final = _Form(
    initialize_share_group_state.InitializeShareGroupStateRequest,
    initialize_share_group_state.InitializeStateData,
    lambda request: initialize_share_group_state.PartitionData(
        partition=request.key.partition, state_epoch=request.state_epoch, start_offset=request.start_offset
    ),
    lambda key, fields: InitializeState(key, fields.state_epoch, Offset(fields.start_offset)),
    initialize_share_group_state.InitializeShareGroupStateResponse,
    initialize_share_group_state.InitializeStateResult,
    _plain_result(initialize_share_group_state.PartitionResult),
    _no_state,
)
_READ: Final = _Form(
    read_share_group_state.ReadShareGroupStateRequest,
    read_share_group_state.ReadStateData,
    lambda request: read_share_group_state.PartitionData(
        partition=request.key.partition, leader_epoch=request.leader_epoch
    ),
    lambda key, fields: ReadState(key, LeaderEpoch(fields.leader_epoch)),
    read_share_group_state.ReadShareGroupStateResponse,
    read_share_group_state.ReadStateResult,
    _read_result,
    lambda result: SnapshotValue(0, result.state_epoch, 0, result.start_offset, batches=_batches(result.state_batches)),
)
_WRITE: Final = _Form(
    write_share_group_state.WriteShareGroupStateRequest,
    write_share_group_state.WriteStateData,
    _write_fields,
    lambda key, fields: WriteState(
        key,
        fields.state_epoch,
        LeaderEpoch(fields.leader_epoch),
        Offset(fields.start_offset),
        fields.delivery_complete_count,
        _batches(fields.state_batches),
    ),
    write_share_group_state.WriteShareGroupStateResponse,
    write_share_group_state.WriteStateResult,
    _plain_result(write_share_group_state.PartitionResult),
    _no_state,
)
_DELETE: Final = _Form(
    delete_share_group_state.DeleteShareGroupStateRequest,
    delete_share_group_state.DeleteStateData,
    lambda request: delete_share_group_state.PartitionData(partition=request.key.partition),
    lambda key, _fields: DeleteState(key),
    delete_share_group_state.DeleteShareGroupStateResponse,
    delete_share_group_state.DeleteStateResult,
    _plain_result(delete_share_group_state.PartitionResult),
    _no_state,
)
_SUMMARIZE: Final = _Form(
    read_share_group_state_summary.ReadShareGroupStateSummaryRequest,
    read_share_group_state_summary.ReadStateSummaryData,
    lambda request: read_share_group_state_summary.PartitionData(
        partition=request.key.partition, leader_epoch=request.leader_epoch
    ),
    lambda key, fields: SummarizeState(key, LeaderEpoch(fields.leader_epoch)),
    read_share_group_state_summary.ReadShareGroupStateSummaryResponse,
    read_share_group_state_summary.ReadStateSummaryResult,
    _summary_result,
    lambda result: SnapshotValue(
        0, result.state_epoch, result.leader_epoch, result.start_offset, result.delivery_complete_count
    ),
)
_FORMS: Final[dict[type, _Form]] = {
    InitializeState: _INITIALIZE,
    initialize_share_group_state.InitializeShareGroupStateRequest: _INITIALIZE,
    ReadState: _READ,
    read_share_group_state.ReadShareGroupStateRequest: _READ,
    WriteState: _WRITE,
    write_share_group_state.WriteShareGroupStateRequest: _WRITE,
    DeleteState: _DELETE,
    delete_share_group_state.DeleteShareGroupStateRequest: _DELETE,
    SummarizeState: _SUMMARIZE,
    read_share_group_state_summary.ReadShareGroupStateSummaryRequest: _SUMMARIZE,
}
"""Keys: the type of a request, and the type of its message."""
