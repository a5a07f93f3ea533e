"""Classic members in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup
(docs/internals/consumer-groups.md).

No request waits. ``group`` is a consumer group with members; a JoinGroup into an empty one makes it classic.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import MemberId
from oncelog.core.groups.consumer.conversion import assignment_for, downgrade, may_downgrade, partitions_by_id
from oncelog.core.groups.consumer.decision import AnswerT, ConsumerDecision, MemberTimer
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.consumer.identity import check_not_fenced, known_static_member, replace_static
from oncelog.core.groups.consumer.member import ClassicMetadata, ConsumerMember
from oncelog.core.groups.consumer.member_update import (
    MemberUpdate,
    advance,
    choose_target,
    last_target,
    raise_epoch,
    subscribe,
)
from oncelog.core.groups.consumer.removal import remove_members
from oncelog.core.groups.consumer.settings import GroupLimits, MigrationPolicy
from oncelog.core.groups.model import (
    CONSUMER_PROTOCOL,
    UNKNOWN_MEMBER,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeaveReply,
    LeavingMember,
    SyncReply,
    SyncRequest,
)
from oncelog.core.groups.modern.group import Refused
from oncelog.core.groups.modern.members import MemberState
from oncelog.core.groups.modern.topics import Topics
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal.consumer_protocol import PartitionsByTopic, Subscription, read_subscription

JoinDecision = ConsumerDecision[JoinReply]


def decide_join(
    group: ConsumerGroup, request: JoinRequest, topics: Topics, limits: GroupLimits, now_ms: int
) -> JoinDecision:
    """Decide a JoinGroup, whose session time-out the caller has checked. Raises Refused."""
    is_new = request.member_id == UNKNOWN_MEMBER
    member_id = request.new_member_id if is_new else request.member_id
    _check_join(group, request, member_id, limits)
    if is_new and request.group_instance_id is None and request.requires_known_member_id:
        return JoinDecision(JoinReply(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    decision = JoinDecision(JoinReply(ErrorCode.NONE, member_id))
    subscription, reported = _subscription(request)
    before = _joining_member(group, request, member_id, decision)
    after = _updated(before, request, subscription)
    update = MemberUpdate(group, before, after, topics, limits, now_ms)
    owned = partitions_by_id(reported, topics)
    change = subscribe(update, decision)
    changed = change.names or change.regex
    epoch = raise_epoch(update, decision, bump=changed)
    predecessor = group.static_member(request.group_instance_id)
    downgrades = predecessor is not None and _downgrades_by_replacing(group, predecessor, limits)
    is_stale = downgrades and group.target_epoch < epoch
    if not is_stale:
        target = last_target(update) if downgrades else choose_target(update, epoch, decision)
        after = advance(update, target, owned, decision, changed=changed)
    decision.cancel(member_id, MemberTimer.JOIN)
    if downgrades:
        # With the newest assignment in hand the classic group needs no rebalance (KAFKA-20273).
        downgrade(group, topics, now_ms, decision, joining=after, rebalances=is_stale)
    else:
        decision.start(member_id, MemberTimer.SESSION, request.session_timeout_ms)
        decision.start(member_id, MemberTimer.SYNC, after.rebalance_timeout_ms)
    protocol = request.protocols[0].name
    decision.answer = JoinReply(ErrorCode.NONE, member_id, after.epoch, CONSUMER_PROTOCOL, protocol)
    return decision


def decide_sync(group: ConsumerGroup, request: SyncRequest, topics: Topics) -> ConsumerDecision[SyncReply]:
    """Raises Refused."""
    member, classic = _classic_member(group, request.member_id, request.group_instance_id, request.generation)
    if request.protocol_type not in (None, CONSUMER_PROTOCOL):
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"The protocol type {request.protocol_type} from member {member.member_id} request is not equal to the "
            f"group protocol type {CONSUMER_PROTOCOL}.",
        )
    protocol = classic.protocols[0]
    if request.protocol_name not in (None, protocol.name):
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"The protocol name {request.protocol_name} from member {member.member_id} request is not equal to the "
            f"protocol name {protocol.name} returned in the join response.",
        )
    if group.target_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        refused = ConsumerDecision(SyncReply(ErrorCode.REBALANCE_IN_PROGRESS))
        _await_join(member, refused)
        return refused
    partitions = {topic: frozenset(epochs) for topic, epochs in member.assigned.items()}
    assignment = assignment_for(protocol.metadata, partitions, topics)
    reply = SyncReply(ErrorCode.NONE, request.protocol_type, request.protocol_name, assignment)
    decision = ConsumerDecision(reply)
    decision.cancel(member.member_id, MemberTimer.SYNC)
    decision.start(member.member_id, MemberTimer.SESSION, classic.session_timeout_ms)
    return decision


def decide_classic_heartbeat(group: ConsumerGroup, request: HeartbeatRequest) -> ConsumerDecision[ErrorCode]:
    """Decide a Heartbeat: REBALANCE_IN_PROGRESS if the member has a step to take (KAFKA-20272). Raises Refused."""
    member, classic = _classic_member(group, request.member_id, request.group_instance_id, request.generation)
    decision = ConsumerDecision(ErrorCode.NONE)
    decision.start(member.member_id, MemberTimer.SESSION, classic.session_timeout_ms)
    if (
        member.epoch < group.target_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_owners(group, member))
    ):
        decision.answer = ErrorCode.REBALANCE_IN_PROGRESS
        _await_join(member, decision)
    return decision


def decide_classic_leave(
    group: ConsumerGroup, leaving: Sequence[LeavingMember], topics: Topics, limits: GroupLimits, now_ms: int
) -> ConsumerDecision[LeaveReply]:
    """Decide a LeaveGroup, of a member or by an administrator: members of both protocols may be named."""
    members: dict[MemberId, ConsumerMember] = {}
    outcomes = []
    for identity in leaving:
        try:
            member = _leaving_member(group, identity)
        except Refused as refused:
            outcomes.append((identity, refused.code))
        else:
            members[member.member_id] = member
            outcomes.append((identity, ErrorCode.NONE))
    decision = ConsumerDecision(LeaveReply(ErrorCode.NONE, outcomes))
    remove_members(group, members.values(), topics, limits, now_ms, decision)
    return decision


def _check_join(group: ConsumerGroup, request: JoinRequest, member_id: MemberId, limits: GroupLimits) -> None:
    if limits.migration is MigrationPolicy.DISABLED:
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Cannot join the consumer group {group.group_id} with the classic protocol because the group migration "
            "is disabled.",
        )
    group.check_not_full(member_id, limits.max_size)
    if not group.supports(request.protocol_type, (protocol.name for protocol in request.protocols)):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported.")


def _subscription(request: JoinRequest) -> tuple[Subscription, PartitionsByTopic]:
    """The subscription in the first protocol, and the partitions that the member says it owns. Raises Refused."""
    try:
        return read_subscription(request.protocols[0].metadata)
    except CorruptBatch as error:
        # Apache Kafka answers UNKNOWN_SERVER_ERROR.
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"The metadata of protocol {request.protocols[0].name} is no subscription of the consumer protocol: "
            f"{error}.",
        ) from error


def _joining_member(
    group: ConsumerGroup, request: JoinRequest, member_id: MemberId, decision: JoinDecision
) -> ConsumerMember:
    """The member as it was before. Raises Refused."""
    instance_id = request.group_instance_id
    if instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    if request.member_id != UNKNOWN_MEMBER:
        return known_static_member(group, member_id, instance_id)
    predecessor = group.static_member(instance_id)
    if predecessor is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    return replace_static(group, predecessor, member_id, decision)


def _updated(member: ConsumerMember, request: JoinRequest, subscription: Subscription) -> ConsumerMember:
    """The member as a classic one; a regular expression of its predecessor is void (KAFKA-19720)."""
    has_timeout = request.rebalance_timeout_ms >= 0
    return member._replace(
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack or member.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_timeout else member.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        regex="",
        client_id=request.client_id,
        client_host=request.client_host,
        classic=ClassicMetadata(request.session_timeout_ms, request.protocols),
    )


def _downgrades_by_replacing(group: ConsumerGroup, replaced: ConsumerMember, limits: GroupLimits) -> bool:
    """True if a classic member replaces the last member of the new protocol (KAFKA-17317)."""
    is_last = replaced.classic is None and group.is_classic_without([replaced])
    return is_last and may_downgrade(len(group.members), limits)


def _classic_member(
    group: ConsumerGroup, member_id: MemberId, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicMetadata]:
    """The classic member that a request names, in its current generation. Raises Refused."""
    if instance_id is None:
        member = group.known_member(member_id)
    else:
        static_member = group.static_member(instance_id)
        if static_member is None:
            raise Refused(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member with instance id {instance_id} is not a member of group {group.group_id}.",
            )
        check_not_fenced(static_member, member_id, instance_id)
        member = static_member
    if member.classic is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol.")
    if generation != member.epoch:
        raise Refused(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {generation} is not equal to the member epoch {member.epoch} of member "
            f"{member_id}.",
        )
    return member, member.classic


def _await_join(member: ConsumerMember, decision: ConsumerDecision[AnswerT]) -> None:
    """Give a member that has been told to rejoin its rebalance time-out for it."""
    decision.start(member.member_id, MemberTimer.JOIN, member.rebalance_timeout_ms, keeps_running=True)


def _waits_for_owners(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """True if a partition of the member's target still belongs to another member."""
    return any(
        partition not in member.assigned.get(topic, {}) and group.owner(topic, partition) is not None
        for topic, partitions in group.target.get(member.member_id, {}).items()
        for partition in partitions
    )


def _leaving_member(group: ConsumerGroup, identity: LeavingMember) -> ConsumerMember:
    """Raises Refused."""
    member_id, instance_id = identity
    if instance_id is None:
        return group.known_member(member_id)
    static_member = group.static_member(instance_id)
    # An administrator names the instance id only.
    if member_id == UNKNOWN_MEMBER and static_member is not None:
        return static_member
    return known_static_member(group, member_id, instance_id)
