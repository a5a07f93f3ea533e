"""Groups with their members, one API for each group protocol.

DescribeGroups, versions 0 to 6 (KIP-345, KIP-430, KIP-1043): classic groups and their members, whose own data is shown
while the group is Stable. Missing groups and those of another protocol are Dead, from version 6 on an error.

ConsumerGroupDescribe, versions 0 and 1 (KIP-848), and ShareGroupDescribe, version 1 (KIP-932): a group with a topic,
assigned or targeted, that the requester may not describe answers TOPIC_AUTHORIZATION_FAILED, without members. Version 1
of the former tells which members use the classic protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, TopicId, TopicName
from oncelog.core.groups.model import GroupDecision, GroupDescription
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps
from oncelog.handlers.groups.requests import COORDINATOR_ERRORS, ask, serves_consumer_protocol, serves_share_groups
from oncelog.wire.messages import consumer_group_describe as consumer
from oncelog.wire.messages import describe_groups as classic
from oncelog.wire.messages import share_group_describe as share

if TYPE_CHECKING:
    from oncelog.core.groups.consumer.member import ConsumerMember
    from oncelog.core.groups.modern.members import Partitions
    from oncelog.core.groups.shard import GroupShard
    from oncelog.core.groups.share.member import ShareMember
    from oncelog.core.groups.views import ConsumerGroupDescription, ShareGroupDescription

D = TypeVar("D")
Group = TypeVar("Group", classic.DescribedGroup, consumer.DescribedGroup, share.DescribedGroup)
NewGroup = TypeVar("NewGroup", consumer.DescribedGroup, share.DescribedGroup)

CLASSIC_GROUPS_ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.GROUP_ID_NOT_FOUND: "no such group, or one of the consumer protocol (version 6)",
}
_NEW_GROUPS_ERRORS: Final = {
    **COORDINATOR_ERRORS,
    ErrorCode.INVALID_GROUP_ID: "the group id is empty",
    ErrorCode.GROUP_ID_NOT_FOUND: "no such group, or one of another protocol",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed to describe a topic of the group",
}
CONSUMER_GROUPS_ERRORS: Final[Mapping[ErrorCode, str]] = {
    **_NEW_GROUPS_ERRORS,
    ErrorCode.UNSUPPORTED_VERSION: "the feature group.version or group.coordinator.rebalance.protocols forbids it",
}
SHARE_GROUPS_ERRORS: Final[Mapping[ErrorCode, str]] = {
    **_NEW_GROUPS_ERRORS,
    ErrorCode.UNSUPPORTED_VERSION: "the feature share.version forbids it",
}
_NOT_FOUND_SINCE: Final = 6
_OPERATIONS_SINCE: Final = 3
_HIDDEN_TOPIC: Final = "The group has described topic(s) that the client is not authorized to describe."
_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


def classic_groups(request: classic.DescribeGroupsRequest, context: Context) -> Steps[classic.DescribeGroupsResponse]:
    with_operations = request.include_authorized_operations and context.version >= _OPERATIONS_SINCE
    groups = yield from _describe_each(
        request.groups,
        context,
        classic.DescribedGroup,
        lambda shard, group_id: shard.describe(group_id),
        lambda group_id, description: _classic_group(group_id, description, context),
        with_operations=with_operations,
    )
    return classic.DescribeGroupsResponse(groups=groups)


def consumer_groups(
    request: consumer.ConsumerGroupDescribeRequest, context: Context
) -> Steps[consumer.ConsumerGroupDescribeResponse]:
    groups = yield from _describe_new(
        request,
        context,
        consumer.DescribedGroup,
        lambda shard, group_id: shard.describe_consumer_group(group_id),
        lambda group_id, description: _consumer_group(group_id, description, context),
        is_served=serves_consumer_protocol(context),
    )
    return consumer.ConsumerGroupDescribeResponse(groups=groups)


def share_groups(request: share.ShareGroupDescribeRequest, context: Context) -> Steps[share.ShareGroupDescribeResponse]:
    groups = yield from _describe_new(
        request,
        context,
        share.DescribedGroup,
        lambda shard, group_id: shard.share.describe(group_id),
        lambda group_id, description: _share_group(group_id, description, context),
        is_served=serves_share_groups(context),
    )
    return share.ShareGroupDescribeResponse(groups=groups)


def _describe_new(
    request: consumer.ConsumerGroupDescribeRequest | share.ShareGroupDescribeRequest,
    context: Context,
    described: type[NewGroup],
    describe: Callable[[GroupShard, GroupId], D | str],
    group_of: Callable[[str, D], NewGroup],
    *,
    is_served: bool,
) -> Steps[list[NewGroup]]:
    if not is_served:
        code = ErrorCode.UNSUPPORTED_VERSION
        return [described(group_id=group_id, error_code=code) for group_id in dict.fromkeys(request.group_ids)]
    return (
        yield from _describe_each(
            request.group_ids,
            context,
            described,
            describe,
            group_of,
            with_operations=request.include_authorized_operations,
            needs_name=True,
        )
    )


def _describe_each(
    group_ids: Iterable[str],
    context: Context,
    described: type[Group],
    describe: Callable[[GroupShard, GroupId], D | str],
    group_of: Callable[[str, D], Group],
    *,
    with_operations: bool,
    needs_name: bool = False,
) -> Steps[list[Group]]:
    """``describe`` returns a group, or the reason why the id names none; ``group_of`` makes the answer about it."""
    # A repeated name is answered once: a group can be large, and a request can repeat it thirty thousand times.
    visible = {group_id: context.allows_group(Operation.DESCRIBE, group_id) for group_id in group_ids}
    # Denied groups come first, as in Apache Kafka.
    groups = [
        described(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        for group_id, may_see in visible.items()
        if not may_see
    ]
    for group_id in (group_id for group_id, may_see in visible.items() if may_see):
        if needs_name and not group_id:
            groups.append(described(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID))
            continue
        reply = yield from _description(GroupId(group_id), describe)
        if isinstance(reply, ErrorCode):
            group = described(group_id=group_id, error_code=reply)
        elif isinstance(reply, str):
            group = described(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=reply)
        else:
            group = group_of(group_id, reply)
        if with_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = context.allowed_operations(ResourceType.GROUP, group_id)
        groups.append(group)
    return groups


def _description(group_id: GroupId, describe: Callable[[GroupShard, GroupId], D | str]) -> Steps[D | str | ErrorCode]:
    def decide(shard: GroupShard, token: int, now_ms: int) -> GroupDecision:
        return GroupDecision(reply=describe(shard, group_id), waits_for_pending=True)

    return (yield from ask(group_id, decide, ErrorCode))


def _classic_group(group_id: str, description: GroupDescription, context: Context) -> classic.DescribedGroup:
    is_refused = description.not_found is not None and context.version >= _NOT_FOUND_SINCE
    return classic.DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND if is_refused else ErrorCode.NONE,
        error_message=description.not_found if is_refused else None,
        group_id=group_id,
        group_state=description.state,
        protocol_type=description.protocol_type,
        protocol_data=description.protocol_name,
        members=[
            classic.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in description.members
        ],
        pending_member_ids=[pending.member_id for pending in description.pending],
        pending_until_ms=[pending.until_ms for pending in description.pending],
        pending_hosts=[pending.client_host for pending in description.pending],
        awaited_member_ids=list(description.awaited),
    )


def _consumer_group(group_id: str, description: ConsumerGroupDescription, context: Context) -> consumer.DescribedGroup:
    group = consumer.DescribedGroup(
        group_id=group_id,
        group_state=description.state,
        group_epoch=description.epoch,
        assignment_epoch=description.target_epoch,
        assignor_name=description.assignor,
        members=[_consumer_member(member, target, context) for member, target in description.members],
    )
    assignments = [part for member in group.members for part in (member.assignment, member.target_assignment)]
    if _hides_a_topic(assignments, context):
        group.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        group.error_message = _HIDDEN_TOPIC
        group.members = []
    return group


def _consumer_member(member: ConsumerMember, target: Partitions, context: Context) -> consumer.Member:
    return consumer.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_consumer_assignment(_owned(member), context),
        target_assignment=_consumer_assignment(target, context),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _owned(member: ConsumerMember) -> Mapping[TopicId, Collection[int]]:
    """The partitions that no other member can get yet: assigned ones, and those still to be given up."""
    owned: dict[TopicId, set[int]] = {topic: set(partitions) for topic, partitions in member.assigned.items()}
    for topic, partitions in member.pending_revocation.items():
        owned.setdefault(topic, set()).update(partitions)
    return owned


def _consumer_assignment(partitions: Mapping[TopicId, Collection[int]], context: Context) -> consumer.Assignment:
    return consumer.Assignment(
        topic_partitions=[
            consumer.TopicPartitions(topic_id=topic, topic_name=name, partitions=sorted(partitions[topic]))
            for topic, name in _existing(partitions, context)
        ]
    )


def _share_group(group_id: str, description: ShareGroupDescription, context: Context) -> share.DescribedGroup:
    group = share.DescribedGroup(
        group_id=group_id,
        group_state=description.state,
        group_epoch=description.epoch,
        assignment_epoch=description.target_epoch,
        assignor_name=description.assignor,
        members=[_share_member(member, context) for member in description.members],
    )
    if _hides_a_topic([member.assignment for member in group.members], context):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return share.DescribedGroup(group_id=group_id, error_code=code, error_message=_HIDDEN_TOPIC)
    return group


def _share_member(member: ShareMember, context: Context) -> share.Member:
    return share.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        assignment=share.Assignment(
            topic_partitions=[
                share.TopicPartitions(topic_id=topic, topic_name=name, partitions=sorted(member.assigned[topic]))
                for topic, name in _existing(member.assigned, context)
            ]
        ),
    )


def _existing(topics: Iterable[TopicId], context: Context) -> list[tuple[TopicId, TopicName]]:
    names = context.cluster.image.topic_names
    return [(topic, names[topic]) for topic in topics if topic in names]


def _hides_a_topic(assignments: Iterable[consumer.Assignment | share.Assignment], context: Context) -> bool:
    topics = {part.topic_name for assignment in assignments for part in assignment.topic_partitions}
    # All of them are asked about: each denial is in the access log.
    allowed = [context.allows_topic(Operation.DESCRIBE, topic) for topic in sorted(topics)]
    return not all(allowed)
