"""Checks that a member may commit or fetch offsets (KIP-848, KIP-1251; docs/internals/groups.md has the rules).

A commit may have an older epoch because the answer with the new one was lost, or because it was on its way.
"""

from __future__ import annotations

from collections.abc import Callable

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import MemberId, TopicId, TopicName
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.consumer.member import ConsumerMember
from oncelog.core.groups.modern.group import Refused

PartitionCheck = Callable[[TopicName, TopicId, int], ErrorCode]
"""The error code of a commit for one partition."""


def check_commit(
    group: ConsumerGroup,
    member_id: MemberId,
    instance_id: str | None,
    epoch: int,
    *,
    knows_epochs: bool,
    is_transactional: bool = False,
) -> PartitionCheck:
    """The check of each partition of a commit. Raises Refused when none may be committed.

    ``knows_epochs``: the request's version has member epochs.
    """
    if epoch < 0 and not group.members:
        return _accept
    if is_transactional and epoch == -1 and not member_id and instance_id is None:
        # A transactional producer before KIP-447 does not say for which member it commits.
        return _accept
    member = group.members.get(member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")
    if not is_transactional and member.classic is None and not knows_epochs:
        raise Refused(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
        )
    if epoch == member.epoch:
        return _accept
    if epoch > member.epoch:
        raise _stale(member, epoch)
    code = _stale_code(member)

    def since_assignment(_: TopicName, topic: TopicId, partition: int) -> ErrorCode:
        for epochs in (member.assigned, member.pending_revocation):
            assigned_in = epochs.get(topic, {}).get(partition)
            if assigned_in is not None:
                return ErrorCode.NONE if epoch >= assigned_in else code
        return code

    return since_assignment


def check_fetch(group: ConsumerGroup, member_id: MemberId | None, epoch: int) -> None:
    """Raises Refused unless a member names its epoch, or an administrator names no member."""
    if member_id is None and epoch < 0:
        return
    member = None if member_id is None else group.members.get(member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")
    if epoch != member.epoch:
        raise _stale(member, epoch)


def _accept(name: TopicName, topic: TopicId, partition: int) -> ErrorCode:
    return ErrorCode.NONE


def _stale_code(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _stale(member: ConsumerMember, epoch: int) -> Refused:
    word = "member epoch" if member.classic is None else "generation id"
    return Refused(
        _stale_code(member), f"Received {word} {epoch} does not match the current member epoch {member.epoch}."
    )
