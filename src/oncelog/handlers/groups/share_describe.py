"""ShareGroupDescribe, version 1 (KIP-932): share groups with their members and assignments.

A group with an assigned topic that the requester may not describe answers TOPIC_AUTHORIZATION_FAILED, without members.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId
from oncelog.core.groups.model import GroupDecision
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps
from oncelog.handlers.groups.requests import COORDINATOR_ERRORS, ask, serves_share_groups
from oncelog.wire.messages import share_group_describe as wire

if TYPE_CHECKING:
    from oncelog.core.groups.shard import GroupShard
    from oncelog.core.groups.share.member import ShareMember
    from oncelog.core.groups.views import ShareGroupDescription

ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.UNSUPPORTED_VERSION: "the feature share.version forbids it",
    ErrorCode.INVALID_GROUP_ID: "the group id is empty",
    ErrorCode.GROUP_ID_NOT_FOUND: "no such group, or one of another protocol",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to describe a topic of the group",
}


def handle(request: wire.ShareGroupDescribeRequest, context: Context) -> Steps[wire.ShareGroupDescribeResponse]:
    # A repeated name is answered once: a group can be large, and a request can repeat it thirty thousand times.
    group_ids = dict.fromkeys(request.group_ids)
    if not serves_share_groups(context):
        return _refused(group_ids, ErrorCode.UNSUPPORTED_VERSION)
    visible = {group_id: context.allows_group(Operation.DESCRIBE, group_id) for group_id in group_ids}
    # Denied groups come first, as in Apache Kafka.
    denied = [group_id for group_id, may_see in visible.items() if not may_see]
    response = _refused(denied, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    for group_id in (group_id for group_id, may_see in visible.items() if may_see):
        if not group_id:
            response.groups += _refused([group_id], ErrorCode.INVALID_GROUP_ID).groups
            continue
        description: ShareGroupDescription | str | ErrorCode = yield from ask(
            group_id, partial(_describe, GroupId(group_id)), ErrorCode
        )
        group = _described(group_id, description, context)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = context.allowed_operations(ResourceType.GROUP, group_id)
        response.groups.append(group)
    return response


def _refused(group_ids: Collection[str], error_code: ErrorCode) -> wire.ShareGroupDescribeResponse:
    return wire.ShareGroupDescribeResponse(
        groups=[wire.DescribedGroup(group_id=group_id, error_code=error_code) for group_id in group_ids]
    )


def _describe(group_id: GroupId, shard: GroupShard, token: int, now_ms: int) -> GroupDecision:
    return GroupDecision(reply=shard.share.describe(group_id), waits_for_pending=True)


def _described(
    group_id: str, description: ShareGroupDescription | str | ErrorCode, context: Context
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
        members=[_member(member, context) for member in description.members],
    )
    topics = {part.topic_name for member in group.members for part in member.assignment.topic_partitions}
    denied = [topic for topic in sorted(topics) if not context.allows_topic(Operation.DESCRIBE, topic)]
    if denied:
        return wire.DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message="The group has described topic(s) that the client is not authorized to describe.",
        )
    return group


def _member(member: ShareMember, context: Context) -> wire.Member:
    names = context.cluster.image.topic_names
    return wire.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        assignment=wire.Assignment(
            topic_partitions=[
                wire.TopicPartitions(topic_id=topic, topic_name=names[topic], partitions=sorted(partitions))
                for topic, partitions in member.assigned.items()
                if topic in names
            ]
        ),
    )
