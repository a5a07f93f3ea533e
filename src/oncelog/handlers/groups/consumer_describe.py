"""ConsumerGroupDescribe, versions 0 and 1 (KIP-848): consumer groups with their members and assignments.

A group with a topic, assigned or targeted, that the requester may not describe answers TOPIC_AUTHORIZATION_FAILED,
without members. Version 1 tells which members use the classic protocol.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, TopicId
from oncelog.core.groups.model import GroupDecision
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps
from oncelog.handlers.groups.requests import COORDINATOR_ERRORS, ask, serves_consumer_protocol
from oncelog.wire.messages import consumer_group_describe as wire

if TYPE_CHECKING:
    from oncelog.core.groups.consumer.member import ConsumerMember, Partitions
    from oncelog.core.groups.shard import GroupShard
    from oncelog.core.groups.views import ConsumerGroupDescription

ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.UNSUPPORTED_VERSION: "the feature group.version or group.coordinator.rebalance.protocols forbids it",
    ErrorCode.INVALID_GROUP_ID: "the group id is empty",
    ErrorCode.GROUP_ID_NOT_FOUND: "no such group, or one of another protocol",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to describe a topic of the group",
}
_CLASSIC: Final = 0
_CONSUMER: Final = 1


def handle(request: wire.ConsumerGroupDescribeRequest, context: Context) -> Steps[wire.ConsumerGroupDescribeResponse]:
    # A repeated name is answered once: a group can be large, and a request can repeat it thirty thousand times.
    group_ids = dict.fromkeys(request.group_ids)
    if not serves_consumer_protocol(context):
        return _refused(group_ids, ErrorCode.UNSUPPORTED_VERSION)
    visible = {group_id: context.allows_group(Operation.DESCRIBE, group_id) for group_id in group_ids}
    # Denied groups come first, as in Apache Kafka.
    denied = [group_id for group_id, may_see in visible.items() if not may_see]
    response = _refused(denied, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    for group_id in (group_id for group_id, may_see in visible.items() if may_see):
        if not group_id:
            response.groups += _refused([group_id], ErrorCode.INVALID_GROUP_ID).groups
            continue
        description: ConsumerGroupDescription | str | ErrorCode = yield from ask(
            group_id, partial(_describe, GroupId(group_id)), ErrorCode
        )
        group = _described(group_id, description, context)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = context.allowed_operations(ResourceType.GROUP, group_id)
        response.groups.append(group)
    return response


def _refused(group_ids: Collection[str], error_code: ErrorCode) -> wire.ConsumerGroupDescribeResponse:
    return wire.ConsumerGroupDescribeResponse(
        groups=[wire.DescribedGroup(group_id=group_id, error_code=error_code) for group_id in group_ids]
    )


def _describe(group_id: GroupId, shard: GroupShard, token: int, now_ms: int) -> GroupDecision:
    return GroupDecision(reply=shard.describe_consumer_group(group_id), waits_for_pending=True)


def _described(
    group_id: str, description: ConsumerGroupDescription | str | ErrorCode, context: Context
) -> wire.DescribedGroup:
    if isinstance(description, ErrorCode):
        return wire.DescribedGroup(group_id=group_id, error_code=description)
    if isinstance(description, str):
        return wire.DescribedGroup(
            group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=description
        )
    group = wire.DescribedGroup(
        group_id=group_id,
        group_state=description.state,
        group_epoch=description.epoch,
        assignment_epoch=description.target_epoch,
        assignor_name=description.assignor,
        members=[_member(member, target, context) for member, target in description.members],
    )
    topics = {
        part.topic_name
        for member in group.members
        for part in [*member.assignment.topic_partitions, *member.target_assignment.topic_partitions]
    }
    denied = [topic for topic in sorted(topics) if not context.allows_topic(Operation.DESCRIBE, topic)]
    if denied:
        group.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        group.error_message = "The group has described topic(s) that the client is not authorized to describe."
        group.members = []
    return group


def _member(member: ConsumerMember, target: Partitions, context: Context) -> wire.Member:
    return wire.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(_owned(member), context),
        target_assignment=_assignment(target, context),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _owned(member: ConsumerMember) -> Mapping[TopicId, Collection[int]]:
    """The partitions that no other member can get yet: assigned ones, and those still to be given up."""
    owned: dict[TopicId, set[int]] = {topic: set(partitions) for topic, partitions in member.assigned.items()}
    for topic, partitions in member.pending_revocation.items():
        owned.setdefault(topic, set()).update(partitions)
    return owned


def _assignment(partitions: Mapping[TopicId, Collection[int]], context: Context) -> wire.Assignment:
    """Partitions of topics that exist."""
    names = context.cluster.image.topic_names
    return wire.Assignment(
        topic_partitions=[
            wire.TopicPartitions(topic_id=topic, topic_name=names[topic], partitions=sorted(partitions[topic]))
            for topic in partitions
            if topic in names
        ]
    )
