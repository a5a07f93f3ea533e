"""Encodes classic groups as records of ``__consumer_offsets``, and decodes them.

Soft state is not written: a group loaded in the middle of a rebalance is the group of the generation before.
"""

from __future__ import annotations

from collections.abc import Mapping
from sys import intern

from oncelog.base.ids import GroupId, MemberId
from oncelog.core.groups.classic.group import ClassicGroup, ClassicMember
from oncelog.core.groups.classic.states import GroupState
from oncelog.core.groups.model import Protocol, Record
from oncelog.records.internal import group_records
from oncelog.records.internal.group_records import GroupMetadataValue, MemberMetadata


def group_record(
    group: ClassicGroup, assignment: Mapping[MemberId, bytes] | None = None, *, blank: bool = False
) -> Record:
    """The record of a group's present state, with the leader's ``assignment`` if given; ``blank`` for a new group."""
    value = group_value(group, assignment, blank=blank)
    return group_records.encode_group_metadata_key(group.group_id), group_records.encode_group_metadata_value(value)


def group_value(
    group: ClassicGroup, assignment: Mapping[MemberId, bytes] | None = None, *, blank: bool = False
) -> GroupMetadataValue:
    members = () if blank else tuple(_member_metadata(group, member, assignment) for member in group.members.values())
    return GroupMetadataValue(
        protocol_type="" if blank else group.protocol_type or "",
        generation=0 if blank else group.generation,
        protocol=None if blank else group.protocol_name,
        leader=None if blank else group.leader,
        current_state_timestamp=group.state_timestamp_ms,
        members=members,
    )


def group_tombstone(group_id: GroupId) -> Record:
    return group_records.encode_group_metadata_key(group_id), None


def group_of(group_id: GroupId, value: GroupMetadataValue) -> ClassicGroup:
    """The group in a record: Stable with its members, or Empty; each member offers only the chosen protocol."""
    group = ClassicGroup(group_id, value.current_state_timestamp)
    group.generation = value.generation
    group.protocol_type = intern(value.protocol_type) or None
    group.protocol_name = value.protocol
    for stored in value.members:
        member_id = MemberId(stored.member_id)
        # A damaged or foreign record must not break G2.
        if member_id in group.members or stored.group_instance_id in group.static_members:
            continue
        member = ClassicMember(
            member_id,
            stored.group_instance_id,
            stored.client_id,
            stored.client_host,
            stored.session_timeout_ms if stored.rebalance_timeout_ms < 0 else stored.rebalance_timeout_ms,
            stored.session_timeout_ms,
            (Protocol(value.protocol or "", stored.subscription),),
            stored.assignment,
        )
        group.add(member, None)
    if group.members:
        group.state = GroupState.STABLE
        group.protocol_name = value.protocol or ""
        if value.leader in group.members:
            group.leader = MemberId(value.leader or "")
    group.update_subscriptions()
    return group


def assignments_of(value: GroupMetadataValue) -> dict[MemberId, bytes]:
    return {MemberId(member.member_id): member.assignment for member in value.members}


def _member_metadata(
    group: ClassicGroup, member: ClassicMember, assignment: Mapping[MemberId, bytes] | None
) -> MemberMetadata:
    return MemberMetadata(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        subscription=member.metadata(group.protocol_name),
        assignment=member.assignment if assignment is None else assignment.get(member.member_id, b""),
        group_instance_id=member.group_instance_id,
    )
