"""Conversion of a group with members, online: from the classic protocol to the new one and back (KIP-848).

See docs/internals/consumer-groups.md. An upgrade makes each member Stable with its last assignment; a downgrade makes
the group's epoch the generation.
"""

from __future__ import annotations

from collections.abc import Collection

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicId, TopicPartition
from oncelog.core.groups.classic.group import ClassicGroup, ClassicMember
from oncelog.core.groups.classic.persistence import group_value
from oncelog.core.groups.classic.states import GroupState
from oncelog.core.groups.consumer import records
from oncelog.core.groups.consumer.decision import AnswerT, ConsumerDecision, Downgrade, MemberTimer
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.consumer.member import ClassicMetadata, ConsumerMember
from oncelog.core.groups.consumer.settings import GroupLimits
from oncelog.core.groups.model import CONSUMER_PROTOCOL, JoinReply, Protocol, SyncReply
from oncelog.core.groups.modern.group import Refused
from oncelog.core.groups.modern.members import Partitions
from oncelog.core.groups.modern.topics import Topics, hash_of_topics
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal.consumer_protocol import (
    Assignment,
    PartitionsByTopic,
    encode_assignment,
    read_assignment,
    read_subscription,
    version_of,
)
from oncelog.records.internal.group_records import GroupMetadataKey


def upgrade(
    group: ClassicGroup, topics: Topics, limits: GroupLimits, decision: ConsumerDecision[AnswerT]
) -> ConsumerGroup:
    """Raises Refused."""
    _check_upgrade(group, limits)
    # All members may have left during a rebalance that is not over.
    protocol = _common_protocol(group) if group.members else ""
    members = [_consumer_member(group, member, protocol, topics) for member in group.members.values()]
    metadata_hash = hash_of_topics({name for member in members for name in member.topics}, topics)
    group_id, generation = group.group_id, group.generation
    created = [
        *(records.subscription(group_id, member) for member in members),
        records.epoch(group_id, generation, metadata_hash),
        *(records.target(group_id, member.member_id, _without_epochs(member)) for member in members),
        records.target_epoch(group_id, generation, 0),
        *(records.current_assignment(group_id, member) for member in members),
    ]
    decision.records += [records.classic_tombstone(group_id), *created]
    for member in group.members.values():
        decision.start(member.member_id, MemberTimer.SESSION, member.session_timeout_ms)
        if member.join_token is not None:
            reply = JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            decision.released.append((member.join_token, reply))
        if member.sync_token is not None:
            decision.released.append((member.sync_token, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)))
    upgraded = ConsumerGroup(group_id)
    for key, value in created:
        upgraded.apply(key, value)
    return upgraded


def _check_upgrade(group: ClassicGroup, limits: GroupLimits) -> None:
    if not limits.migration.allows_upgrade:
        raise _cannot_upgrade(group, "online upgrade is disabled.")
    if group.protocol_type != CONSUMER_PROTOCOL:
        raise _cannot_upgrade(group, "the group does not use the consumer embedded protocol.")
    if len(group.members) > limits.max_size:
        raise _cannot_upgrade(group, "the group size exceeds the consumer group maximum size.")


def _cannot_upgrade(group: ClassicGroup, reason: str) -> Refused:
    message = f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}"
    return Refused(ErrorCode.GROUP_ID_NOT_FOUND, message)


def _common_protocol(group: ClassicGroup) -> str:
    name = group.protocol_name
    # During a rebalance none may be chosen yet, or members may have changed their offers. Apache Kafka fails then.
    return name if name is not None and group.all_support(name) else group.select_protocol()


def _consumer_member(group: ClassicGroup, member: ClassicMember, protocol: str, topics: Topics) -> ConsumerMember:
    """Raises Refused."""
    try:
        subscription, _owned = read_subscription(member.metadata(protocol))
        partitions, user_data = read_assignment(member.assignment) if member.assignment else ({}, None)
    except CorruptBatch:
        raise _cannot_upgrade(group, "the embedded consumer protocol is malformed.") from None
    if user_data:
        # The state of a custom assignor would be lost.
        raise _cannot_upgrade(
            group,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade.",
        )
    assigned = partitions_by_id(partitions, topics)
    return ConsumerMember(
        member.member_id,
        group.generation,
        group.generation,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        assigned={topic: dict.fromkeys(partitions, group.generation) for topic, partitions in assigned.items()},
        classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
    )


def may_downgrade(size: int, limits: GroupLimits) -> bool:
    """True if a group without members of the new protocol becomes a classic group of this size."""
    return limits.migration.allows_downgrade and size <= limits.classic_max_size


def downgrade(
    group: ConsumerGroup,
    topics: Topics,
    now_ms: int,
    decision: ConsumerDecision[AnswerT],
    *,
    leaving: Collection[ConsumerMember] = (),
    joining: ConsumerMember | None = None,
    rebalances: bool,
) -> None:
    """Make a classic group of a consumer group whose remaining members are classic.

    ``joining``: a classic member that replaces the static member of its instance id.
    """
    replaced = None if joining is None else group.static_member(joining.instance_id)
    predecessors = {} if joining is None or replaced is None else {joining.member_id: replaced.member_id}
    gone = {member.member_id for member in leaving}.union(predecessors.values())
    # Damaged records may give two members the same instance id, which a classic group cannot have.
    remaining = [
        member
        for member in group.members.values()
        if member.member_id not in gone and group.static_member(member.instance_id) in (None, member)
    ]
    classic = ClassicGroup(group.group_id, now_ms)
    classic.generation, classic.protocol_type = group.epoch, CONSUMER_PROTOCOL
    for member in remaining if joining is None else [*remaining, joining]:
        classic.add(_classic_member(member), None)
    classic.state, classic.protocol_name = GroupState.STABLE, classic.select_protocol()
    classic.update_subscriptions()
    for member_id, classic_member in classic.members.items():
        share = group.target.get(predecessors.get(member_id, member_id), {})
        classic_member.assignment = assignment_for(classic_member.metadata(classic.protocol_name), share, topics)
    # The records so far have removed a replaced member, and have written its successor.
    successors = {old: new for new, old in predecessors.items()}
    decision.records += records.group_tombstones(group, [successors.get(name, name) for name in group.members])
    decision.records.append((GroupMetadataKey(group.group_id), group_value(classic)))
    decision.downgrade = Downgrade(classic, rebalances)


def _classic_member(member: ConsumerMember) -> ClassicMember:
    classic = member.classic or ClassicMetadata(0, ())
    return ClassicMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        classic.session_timeout_ms,
        tuple(Protocol(*offer) for offer in classic.protocols),
    )


def assignment_for(metadata: bytes, partitions: Partitions, topics: Topics) -> bytes:
    """An assignment in the version of a member's subscription; topics that no longer exist are left out."""
    named = [
        TopicPartition(name, partition)
        for topic in sorted(partitions)
        if (name := topics.name_of(topic)) is not None
        for partition in sorted(partitions[topic])
    ]
    return encode_assignment(Assignment(tuple(named)), version_of(metadata))


def partitions_by_id(partitions: PartitionsByTopic, topics: Topics) -> dict[TopicId, frozenset[int]]:
    """The partitions that exist, by topic id: a member may name any."""
    by_id = {}
    for name, numbers in partitions.items():
        topic = topics.id_of(name)
        if topic is not None:
            exists = range(topics.partitions_of(topic)).__contains__
            by_id[topic] = frozenset(filter(exists, numbers))
    return by_id


def _without_epochs(member: ConsumerMember) -> Partitions:
    return {topic: frozenset(epochs) for topic, epochs in member.assigned.items()}
