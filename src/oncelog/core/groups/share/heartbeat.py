"""Decisions about heartbeats of the share protocol (KIP-932): join, go on, and leave.

A heartbeat that joins or goes on may add records in each of its steps, in this order:

1. Subscribe: write the subscription if it changed.
2. Raise the group's epoch if a subscription or the subscribed topics changed, or if partitions have got their share
   state since the last assignment.
3. Compute a new target assignment when one is due, of partitions with share state.
4. Move the member to the target: without revocation, as members share partitions.
5. Name the partitions that lack share state, as far as there is room for it: the share coordinator makes it after the
   answer.

There are no static members, and no conversions of groups of another type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId, Offset, TopicId, TopicName
from oncelog.core.groups.modern.group import Refused
from oncelog.core.groups.modern.members import JOINING_EPOCH, NO_PARTITIONS, MemberState, Partitions
from oncelog.core.groups.modern.topics import Topics, hash_of_topics
from oncelog.core.groups.share import records
from oncelog.core.groups.share.assignor import ShareMemberSpec, ShareSpec, assign
from oncelog.core.groups.share.decision import UNINITIALIZED_OFFSET, PartitionState, ShareDecision, ShareHeartbeatAnswer
from oncelog.core.groups.share.group import ShareGroup
from oncelog.core.groups.share.member import ShareMember
from oncelog.core.groups.share.settings import ShareGroupSettings
from oncelog.core.groups.share.state_topics import StateTopics, TopicPartitions

_NEW_PARTITION_OFFSET = Offset(0)


class ShareHeartbeat(NamedTuple):
    """ShareGroupHeartbeat; None where the request leaves a field as it was."""

    group_id: GroupId
    member_id: MemberId
    epoch: int
    rack_id: str | None = None
    topics: frozenset[TopicName] | None = None
    client_id: str = ""
    client_host: str = ""


class _Update(NamedTuple):
    """A member before and after a request, and what the steps need."""

    group: ShareGroup
    before: ShareMember
    after: ShareMember
    topics: Topics
    settings: ShareGroupSettings
    now_ms: int


def decide_heartbeat(
    group: object | None,
    request: ShareHeartbeat,
    topics: Topics,
    settings: ShareGroupSettings,
    room: Callable[[], int],
    now_ms: int,
) -> ShareDecision:
    """Decide a heartbeat of a member that joins or goes on; ``group`` is None if it does not exist. ``room`` returns
    how many more partitions may get share state. Raises Refused.
    """
    group = _share_group(group, request.group_id, creates=request.epoch == JOINING_EPOCH)
    before = _member(group, request, settings)
    update = _Update(group, before, _updated(before, request), topics, settings, now_ms)
    decision = ShareDecision(group.group_id, session_of=request.member_id)
    if update.after != before:
        decision.records.append(records.subscription(group.group_id, update.after))
    epoch, rises = _raise_epoch(update, decision)
    target_epoch, share = _choose_target(update, epoch, decision)
    member = _advance(update, target_epoch, share, decision, changed=rises)
    is_told = request.epoch == JOINING_EPOCH or request.topics is not None or member.assigned != before.assigned
    decision.answer = ShareHeartbeatAnswer(member.member_id, member.epoch, member.assigned if is_told else None)
    _initialize(update, epoch, room, decision)
    return decision


def decide_leave(group: object | None, request: ShareHeartbeat, topics: Topics) -> ShareDecision:
    """Decide the last heartbeat of a member, epoch −1. Raises Refused."""
    group = share_group(group, request.group_id)
    decision = remove_member(group, group.known_member(request.member_id), topics)
    decision.answer = ShareHeartbeatAnswer(request.member_id, request.epoch)
    return decision


def remove_member(group: ShareGroup, member: ShareMember, topics: Topics) -> ShareDecision:
    """Remove a member that leaves or whose session has ended, and raise the group's epoch."""
    decision = ShareDecision(group.group_id, records=records.member_tombstones(group.group_id, member.member_id))
    epoch = group.epoch + 1
    metadata_hash = hash_of_topics(group.subscribed_topics(member), topics)
    decision.records.append(records.epoch(group.group_id, epoch, metadata_hash))
    if len(group.members) == 1:
        # Nothing is left to assign: the next member's assignment need not wait for the interval.
        decision.records.append(records.target_epoch(group.group_id, epoch, 0))
    return decision


def share_group(group: object | None, group_id: GroupId) -> ShareGroup:
    """The group if it is a share group. Raises Refused."""
    if group is None:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not isinstance(group, ShareGroup):
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
    return group


def _share_group(group: object | None, group_id: GroupId, *, creates: bool) -> ShareGroup:
    if group is not None:
        return share_group(group, group_id)
    if not creates:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
    return ShareGroup(group_id)


def _member(group: ShareGroup, request: ShareHeartbeat, settings: ShareGroupSettings) -> ShareMember:
    """The member in an epoch that the coordinator can have told it. Raises Refused."""
    group.check_not_full(request.member_id, settings.max_size)
    if request.epoch == JOINING_EPOCH:
        return group.members.get(request.member_id) or ShareMember(request.member_id)
    member = group.known_member(request.member_id)
    if request.epoch in (member.epoch, member.previous_epoch) and request.epoch <= member.epoch:
        return member
    raise Refused(ErrorCode.FENCED_MEMBER_EPOCH, _fenced(member, request.epoch))


def _fenced(member: ShareMember, epoch: int) -> str:
    rejoin = "The member must abandon all its partitions and rejoin."
    known = f"than the one known by the group coordinator ({member.epoch})"
    if epoch > member.epoch:
        return f"The share group member has a greater member epoch ({epoch}) {known}. {rejoin}"
    return (
        f"The share group member has a smaller member epoch ({epoch}) {known}, and it does not match the previous "
        f"member epoch ({member.previous_epoch}). {rejoin}"
    )


def _updated(member: ShareMember, request: ShareHeartbeat) -> ShareMember:
    """The member with the fields that the request names."""
    return member._replace(
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        topics=member.topics if request.topics is None else request.topics,
        client_id=request.client_id,
        client_host=request.client_host,
    )


def _raise_epoch(update: _Update, decision: ShareDecision) -> tuple[int, bool]:
    """The group's epoch after the change, and whether it rises."""
    group, before, after = update.group, update.before, update.after
    if group.metadata_refresh_epoch is None:
        group.forget_comparisons()
    rises = not after.subscribes_as(before)
    if group.target_epoch >= group.epoch:
        rises |= group.has_unassigned_partitions(update.topics)
    if not rises and group.is_compared():
        return group.epoch, False
    metadata_hash = hash_of_topics(group.subscribed_topics(before, after), update.topics)
    rises |= metadata_hash != group.metadata_hash
    epoch = group.epoch + rises
    if rises:
        decision.records.append(records.epoch(group.group_id, epoch, metadata_hash))
    group.metadata_refresh_epoch = epoch
    return epoch, rises


def _choose_target(update: _Update, epoch: int, decision: ShareDecision) -> tuple[int, Partitions]:
    """The epoch of the target assignment, and the member's share: of a new assignment when one is due, or the last."""
    group, member = update.group, update.after
    if not group.is_target_due(epoch, update.settings.assignment_interval_ms, update.now_ms):
        return group.target_epoch, group.target.get(member.member_id, NO_PARTITIONS)
    members = group.members | {member.member_id: member}
    assignment = assign(_spec(group, members, update.topics))
    for member_id in members:
        share = assignment.get(member_id, NO_PARTITIONS)
        if share != group.target.get(member_id):
            decision.records.append(records.target(group.group_id, member_id, share))
    decision.records.append(records.target_epoch(group.group_id, epoch, update.now_ms))
    return epoch, assignment.get(member.member_id, NO_PARTITIONS)


def _spec(group: ShareGroup, members: Mapping[MemberId, ShareMember], topics: Topics) -> ShareSpec:
    """The input of the assignor."""
    # Members mostly subscribe alike: their topics are looked up once.
    ids = {names: _ids_of(names, topics) for names in {member.topics for member in members.values()}}
    specs = {
        member_id: ShareMemberSpec(ids[member.topics], group.target.get(member_id, NO_PARTITIONS))
        for member_id, member in members.items()
    }
    initialized = {} if group.state_topics is None else group.state_topics.partitions()
    return ShareSpec(
        specs,
        len(ids) == 1,
        {
            topic: sorted(number for number in initialized.get(topic, ()) if 0 <= number < topics.partitions_of(topic))
            for topic in sorted(frozenset[TopicId]().union(*ids.values()))
        },
    )


def _ids_of(names: Collection[TopicName], topics: Topics) -> frozenset[TopicId]:
    ids = (topics.id_of(name) for name in names)
    return frozenset(topic for topic in ids if topic is not None)


def _advance(
    update: _Update, target_epoch: int, share: Partitions, decision: ShareDecision, *, changed: bool
) -> ShareMember:
    """The member at its target. ``changed``: the group's epoch rises."""
    member = update.after
    if not changed and member.is_reconciled_to(target_epoch):
        return member
    after = member
    if target_epoch != member.epoch or changed:
        subscribed = _ids_of(member.topics, update.topics)
        after = member._replace(assigned={topic: share[topic] for topic in share if topic in subscribed})
    if target_epoch != member.epoch:
        after = after._replace(state=MemberState.STABLE, epoch=target_epoch, previous_epoch=member.epoch)
    if after != member:
        decision.records.append(records.current_assignment(update.group.group_id, after))
    return after


def _initialize(update: _Update, epoch: int, room: Callable[[], int], decision: ShareDecision) -> None:
    """Name the partitions of subscribed topics that need share state, and write down that they get it."""
    group = update.group
    missing, until_ms = _missing(update)
    state = group.state_topics or StateTopics()
    if missing:
        fitting = state.fitting(missing, room())
        decision.lacks_room = fitting != missing
        # Looked for again after a while: other groups may be gone then.
        missing, until_ms = fitting, min(until_ms, update.now_ms + update.settings.initialize_retry_ms)
    is_steady = update.after.subscribes_as(update.before)
    group.complete_until_ms = until_ms if is_steady and not missing else None
    if not missing:
        return
    decision.to_initialize = [
        PartitionState(topic, partition, epoch, _start_offset(group, state, topic, partition))
        for topic, named in missing.items()
        for partition in sorted(named.partitions)
    ]
    after = state.begin_initializing(missing)
    decision.records.append(records.state_topics(group.group_id, after, update.topics.name_of))


def _missing(update: _Update) -> tuple[Mapping[TopicId, TopicPartitions], float]:
    """Partitions that have no state, and are not getting it since a short time; if none, until when that is so."""
    group, topics, now_ms = update.group, update.topics, update.now_ms
    is_steady = update.after.subscribes_as(update.before)
    if is_steady and group.complete_until_ms is not None and now_ms < group.complete_until_ms:
        return {}, group.complete_until_ms
    state = group.state_topics or StateTopics()
    missing: dict[TopicId, TopicPartitions] = {}
    until_ms = math.inf
    for name in group.subscribed_topics(update.before, update.after):
        topic = topics.id_of(name)
        if topic is None:
            continue
        deletion = group.deletions.get(topic)
        if deletion is not None and now_ms < deletion.until_ms:
            # Made now, the state would go with the old one.
            until_ms = now_ms
            continue
        count = topics.partitions_of(topic)
        known = state.initialized.get(topic, _NONE).partitions
        due_ms = group.initializing_since_ms.get(topic, now_ms) + update.settings.initialize_retry_ms
        if len(known) < count and now_ms < due_ms:
            known |= state.initializing.get(topic, _NONE).partitions - group.uncertain.get(topic, frozenset())
            until_ms = min(until_ms, due_ms)
        if len(known) < count:
            missing[topic] = TopicPartitions(name, frozenset(range(count)) - known)
    return missing, until_ms


def _start_offset(group: ShareGroup, state: StateTopics, topic: TopicId, partition: int) -> Offset:
    """A partition that was added to a known topic starts at its first record; any other where the group's config says.

    Apache Kafka starts at the first record again if an initialization is repeated that failed, or whose outcome got
    lost. Then the partition is not new: it would be delivered as a whole to a group that asked for the latest records.
    """
    is_known = topic in state.initialized or topic in state.initializing
    is_repeated = topic not in state.initialized and partition in state.initializing.get(topic, _NONE).partitions
    is_repeated |= partition < group.first_counts.get(topic, 0)
    return _NEW_PARTITION_OFFSET if is_known and not is_repeated else UNINITIALIZED_OFFSET


_NONE = TopicPartitions("", frozenset())
