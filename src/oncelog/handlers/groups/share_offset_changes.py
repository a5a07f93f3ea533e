"""Changes of start offsets of share groups without members (KIP-932).

AlterShareGroupOffsets, version 0: each named partition starts at an offset; a group that does not exist is made.
DeleteShareGroupOffsets, version 0: the group forgets topics, with all of their partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID, GroupId, Offset, TopicId, TopicName
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps
from oncelog.handlers.groups import share_states
from oncelog.handlers.groups.requests import COORDINATOR_ERRORS, ask, fits_record, serves_share_groups
from oncelog.handlers.groups.share_states import TEXTS
from oncelog.wire.messages import alter_share_group_offsets as alter_wire
from oncelog.wire.messages import delete_share_group_offsets as delete_wire

if TYPE_CHECKING:
    from oncelog.core.groups.share.decision import PartitionState
    from oncelog.core.groups.share_groups import OffsetsReply
    from oncelog.handlers.groups.share_states import Outcome

_CHANGE_ERRORS: Final = {
    **COORDINATOR_ERRORS,
    ErrorCode.UNSUPPORTED_VERSION: "the feature share.version forbids it",
    ErrorCode.INVALID_GROUP_ID: "the group id is empty",
    ErrorCode.NON_EMPTY_GROUP: "the group has members",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to read the topic",
    ErrorCode.UNKNOWN_SERVER_ERROR: "an id too long to be stored, or the share coordinator failed",
}
ALTER_ERRORS: Final[Mapping[ErrorCode, str]] = {
    **_CHANGE_ERRORS,
    ErrorCode.GROUP_ID_NOT_FOUND: "a group of another protocol has the id",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.FENCED_STATE_EPOCH: "the share coordinator knows a later change of the partition",
}
DELETE_ERRORS: Final[Mapping[ErrorCode, str]] = {
    **_CHANGE_ERRORS,
    ErrorCode.GROUP_ID_NOT_FOUND: "no such group, or one of another protocol",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic, or the group has no offsets of it",
}


def alter(
    request: alter_wire.AlterShareGroupOffsetsRequest, context: Context
) -> Steps[alter_wire.AlterShareGroupOffsetsResponse]:
    group_id = GroupId(request.group_id)
    refusal = _refusal(group_id, Operation.READ, context)
    if refusal is not ErrorCode.NONE:
        return _altered(refusal)
    topics = [_altered_topic(topic, context) for topic in _merged(request.topics)]
    starts = {
        TopicName(topic.topic_name): {
            part.partition_index: Offset(start)
            for part, start in zip(topic.partitions, asked, strict=True)
            if not part.error_code
        }
        for topic, asked in topics
        if topic.topic_id != NO_TOPIC_ID and any(not part.error_code for part in topic.partitions)
    }
    reply: OffsetsReply | ErrorCode = yield from ask(
        group_id, lambda shard, token, now_ms: shard.share.alter_offsets(group_id, starts), ErrorCode
    )
    if isinstance(reply, ErrorCode):
        return _altered(reply)
    if reply.error_code is not ErrorCode.NONE:
        return _altered(reply.error_code, reply.message)
    response = alter_wire.AlterShareGroupOffsetsResponse(responses=[topic for topic, _ in topics])
    if reply.states:
        outcomes = yield from share_states.initialize(group_id, reply.states)
        _add_errors(response, reply.states, outcomes)
    return response


def _refusal(group_id: GroupId, operation: Operation, context: Context) -> ErrorCode:
    if not serves_share_groups(context):
        return ErrorCode.UNSUPPORTED_VERSION
    if not context.allows_group(operation, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    return ErrorCode.NONE if fits_record(group_id) else ErrorCode.UNKNOWN_SERVER_ERROR


def _altered(error_code: ErrorCode, message: str | None = None) -> alter_wire.AlterShareGroupOffsetsResponse:
    return alter_wire.AlterShareGroupOffsetsResponse(
        error_code=error_code, error_message=message or TEXTS.get(error_code)
    )


def _merged(
    topics: Sequence[alter_wire.AlterShareGroupOffsetsRequestTopic],
) -> list[alter_wire.AlterShareGroupOffsetsRequestTopic]:
    """Topics and partitions once each; the last offset counts."""
    merged: dict[str, dict[int, alter_wire.AlterShareGroupOffsetsRequestPartition]] = {}
    for topic in topics:
        merged.setdefault(topic.topic_name, {}).update({part.partition_index: part for part in topic.partitions})
    return [
        alter_wire.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=list(partitions.values()))
        for name, partitions in merged.items()
    ]


def _altered_topic(
    topic: alter_wire.AlterShareGroupOffsetsRequestTopic, context: Context
) -> tuple[alter_wire.AlterShareGroupOffsetsResponseTopic, list[int]]:
    """The answer about a topic before the share coordinator has acted, and the offsets asked for."""
    image = context.cluster.image.topics.get(TopicName(topic.topic_name))
    error = ErrorCode.NONE
    if not context.allows_topic(Operation.READ, topic.topic_name):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif image is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partitions = []
    for part in topic.partitions:
        known = image is not None and 0 <= part.partition_index < len(image.partitions)
        own = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if error is ErrorCode.NONE and not known else error
        partitions.append(
            alter_wire.AlterShareGroupOffsetsResponsePartition(
                partition_index=part.partition_index, error_code=own, error_message=TEXTS.get(own)
            )
        )
    answer = alter_wire.AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=NO_TOPIC_ID if image is None or error is not ErrorCode.NONE else image.topic_id,
        partitions=partitions,
    )
    return answer, [part.start_offset for part in topic.partitions]


def _add_errors(
    response: alter_wire.AlterShareGroupOffsetsResponse, states: Sequence[PartitionState], outcomes: Sequence[Outcome]
) -> None:
    failed = {
        (state.topic, state.partition): outcome
        for state, outcome in zip(states, outcomes, strict=True)
        if outcome.error_code is not ErrorCode.NONE
    }
    if not failed:
        return
    for topic in response.responses:
        for part in topic.partitions:
            outcome = failed.get((TopicId(topic.topic_id), part.partition_index))
            if outcome is not None and not part.error_code:
                part.error_code, part.error_message = outcome.error_code, outcome.message


def delete(
    request: delete_wire.DeleteShareGroupOffsetsRequest, context: Context
) -> Steps[delete_wire.DeleteShareGroupOffsetsResponse]:
    group_id = GroupId(request.group_id)
    refusal = _refusal(group_id, Operation.DELETE, context)
    if refusal is not ErrorCode.NONE:
        return _deleted(refusal)
    names, denied = list[TopicName](), list[TopicName]()
    for name in dict.fromkeys(TopicName(topic.topic_name) for topic in request.topics):
        (names if context.allows_topic(Operation.READ, name) else denied).append(name)
    # Denied topics come first, as in Apache Kafka.
    responses = [_topic(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in denied]
    reply: OffsetsReply | ErrorCode = yield from ask(
        group_id, lambda shard, token, now_ms: shard.share.delete_offsets(group_id, names, now_ms), ErrorCode
    )
    if isinstance(reply, ErrorCode):
        return _deleted(reply)
    if reply.error_code is not ErrorCode.NONE:
        return _deleted(reply.error_code, reply.message)
    responses += [_topic(result.name, result.error_code, message=result.message) for result in reply.topics]
    if reply.states:
        errors = yield from share_states.delete(group_id, reply.states)
        gone = [topic for topic, error in errors.items() if error is ErrorCode.NONE]
        if gone:
            # If this is not stored, the topics stay marked: a repeated request finds them.
            stored: ErrorCode = yield from ask(
                group_id, lambda shard, token, now_ms: shard.share.deleted(group_id, gone), ErrorCode
            )
            if stored is not ErrorCode.NONE:
                return _deleted(stored)
        topic_names = context.cluster.image.topic_names
        for topic, error in errors.items():
            responses.append(_topic(topic_names.get(topic, TopicName("")), error, topic_id=topic))
    return delete_wire.DeleteShareGroupOffsetsResponse(responses=responses)


def _deleted(error_code: ErrorCode, message: str | None = None) -> delete_wire.DeleteShareGroupOffsetsResponse:
    return delete_wire.DeleteShareGroupOffsetsResponse(
        error_code=error_code, error_message=message or TEXTS.get(error_code)
    )


def _topic(
    name: TopicName, error_code: ErrorCode, *, topic_id: bytes = NO_TOPIC_ID, message: str | None = None
) -> delete_wire.DeleteShareGroupOffsetsResponseTopic:
    return delete_wire.DeleteShareGroupOffsetsResponseTopic(
        topic_name=name, topic_id=topic_id, error_code=error_code, error_message=message or TEXTS.get(error_code)
    )
