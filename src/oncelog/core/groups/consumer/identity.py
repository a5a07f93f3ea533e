"""The member that a request names, found by its member id or its instance id (KIP-345)."""

from __future__ import annotations

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import MemberId
from oncelog.core.groups.consumer import records
from oncelog.core.groups.consumer.decision import AnswerT, ConsumerDecision
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.consumer.member import ConsumerMember
from oncelog.core.groups.modern.group import Refused
from oncelog.core.groups.modern.members import JOINING_EPOCH


def known_static_member(group: ConsumerGroup, member_id: MemberId, instance_id: str) -> ConsumerMember:
    """Raises Refused for an unknown instance id, and for a member id that has been replaced."""
    member = group.static_member(instance_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    check_not_fenced(member, member_id, instance_id)
    return member


def check_not_fenced(member: ConsumerMember, member_id: MemberId, instance_id: str) -> None:
    """Raises Refused unless the instance id belongs to this member id."""
    if member.member_id != member_id:
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )


def replace_static(
    group: ConsumerGroup, predecessor: ConsumerMember, member_id: MemberId, decision: ConsumerDecision[AnswerT]
) -> ConsumerMember:
    """The successor of a static member, with all that its predecessor had. Its epoch is 0."""
    successor = predecessor._replace(member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=0)
    decision.records += [
        *records.member_tombstones(group.group_id, predecessor.member_id),
        records.subscription(group.group_id, successor),
        records.target(group.group_id, member_id, group.target.get(predecessor.member_id, {})),
        records.current_assignment(group.group_id, successor),
    ]
    decision.cancel(predecessor.member_id)
    return successor
