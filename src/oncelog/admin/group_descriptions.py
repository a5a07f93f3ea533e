"""Lists and describes groups: members, epochs, partitions on their way (KIP-222, KIP-518, KIP-848, KIP-932).

A list is read from every broker, a description from the group's coordinator: first as a group of the consumer protocol,
then as a classic one, then as a share group, since each has its own request. A streams group is shown with type and
state, without members.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import BrokerRefused, UnsupportedRequest
from oncelog.client.machine.assignor import decode_member_assignment
from oncelog.client.machine.versions import Versions
from oncelog.client.programs import Cluster, Program, operation, raise_for_error
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal.consumer_protocol import Subscription, decode_subscription
from oncelog.wire.message import Request
from oncelog.wire.messages import consumer_group_describe as wire
from oncelog.wire.messages import share_group_describe as share_wire
from oncelog.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsRequest
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
GROUP_TYPES: Final = (CLASSIC, CONSUMER, SHARE, "streams")
TYPES_WITH_OFFSETS: Final = (CLASSIC, CONSUMER, "streams")
"""The types of groups that commit offsets, as a filter of ListGroups."""
_NOT_DESCRIBED: Final = (SHARE, "streams")
"""Types that a list may show where no description does: a cluster whose share groups are off still lists them."""
_STATES_SINCE: Final = 4
_TYPES_SINCE: Final = 5
_MEMBER_TYPES: Final = {0: CLASSIC, 1: CONSUMER}
_AWAY: Final = -2
_NO_CONSUMER_GROUP: Final = frozenset(
    # INVALID_GROUP_ID: the consumer protocol has no empty id, and the classic one does.
    {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_GROUP_ID}
)


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in a list. State and type are empty for brokers that do not report them."""

    group: str
    state: str
    group_type: str
    protocol_type: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member of a group. ``partitions`` includes those that it still has to give up; members of a share group have
    partitions in common.

    ``member_type`` is "classic", "consumer", "share", or empty if unknown. ``epoch`` is None for a classic group, and
    ``target`` for a classic or share group; epoch −2 is that of a static member that is away.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    member_type: str = ""
    rack_id: str | None = None
    topics: tuple[str, ...] = ()
    regex: str | None = None
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None

    @property
    def to_give_up(self) -> tuple[TopicPartition, ...]:
        return () if self.target is None else tuple(sorted({*self.partitions} - {*self.target}))

    @property
    def awaited(self) -> tuple[TopicPartition, ...]:
        return () if self.target is None else tuple(sorted({*self.target} - {*self.partitions}))

    @property
    def is_away(self) -> bool:
        """True for a static member that has left and may come back until its session ends."""
        return self.epoch == _AWAY


@dataclass(frozen=True, slots=True)
class Handover:
    """A partition on its way between member ids: ``giver`` is None for a free one, ``receiver`` if no member's target
    has it."""

    partition: TopicPartition
    giver: str | None
    receiver: str | None


@dataclass(frozen=True, slots=True)
class PendingMember:
    """A member id that a classic group gave out and that has not joined (KIP-394)."""

    member_id: str
    until_ms: int
    host: str


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members. ``protocol`` is the assignor; ``target_epoch`` is the target assignment's. A classic
    group has no epochs. ``pending`` and ``awaited`` (member ids) hold up its rebalance; oncelog alone tells them."""

    group: str
    state: str
    group_type: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: list[MemberRow]
    epoch: int | None = None
    target_epoch: int | None = None
    pending: tuple[PendingMember, ...] = ()
    awaited: tuple[str, ...] = ()

    @property
    def has_members_shown(self) -> bool:
        """False for a group that is only listed: ``members`` is empty then."""
        return self.group_type in (CLASSIC, CONSUMER) or (self.is_share and self.epoch is not None)

    @property
    def is_share(self) -> bool:
        return self.group_type == SHARE

    @property
    def commits_offsets(self) -> bool:
        """False for a share group, whose records are acknowledged one by one."""
        return self.group_type in TYPES_WITH_OFFSETS

    @property
    def handovers(self) -> list[Handover]:
        owners = {partition: member.member_id for member in self.members for partition in member.partitions}
        receivers = {partition: member.member_id for member in self.members for partition in member.awaited}
        givers = {partition: member.member_id for member in self.members for partition in member.to_give_up}
        return [
            Handover(partition, owners.get(partition), receivers.get(partition))
            for partition in sorted({*receivers, *givers})
        ]


@operation
def list_groups(cluster: Cluster, states: Collection[str] = (), types: Collection[str] = ()) -> Program[list[GroupRow]]:
    """The groups of all coordinators, by name; only those of some states and types if given.

    Raises BrokerRefused, and UnsupportedRequest for a filter that a broker lacks.
    """
    yield from cluster.retrying(cluster.refresh_brokers)
    message = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    rows: dict[str, GroupRow] = {}

    def list_from(broker: int) -> Program[None]:
        link = yield from cluster.link(broker)
        require_filters(link.versions, broker, states, types)
        response = yield from cluster.request(message, broker=broker)
        raise_for_error(response, f"groups of broker {broker}")
        rows.update({row.group: row for row in listed_groups(broker, response)})

    for broker in sorted(cluster.view.brokers):
        yield from cluster.retrying(lambda broker=broker: list_from(broker))  # type: ignore[misc]  # bound now
    return [rows[name] for name in sorted(rows)]


def require_filters(versions: Versions, broker: int, states: Collection[str], types: Collection[str]) -> None:
    """Raise UnsupportedRequest if a broker with such versions would ignore a filter."""
    version = versions.choose(ListGroupsRequest)
    if states and version < _STATES_SINCE:
        raise UnsupportedRequest(
            f"groups of broker {broker} by state: it has ListGroups up to version {version}, and the filter needs "
            f"{_STATES_SINCE} (Apache Kafka 2.6); list without states"
        )
    # A broker without this filter has no groups but classic ones.
    if types and version < _TYPES_SINCE and CLASSIC not in types:
        raise UnsupportedRequest(
            f"groups of broker {broker} by type: it has ListGroups up to version {version}, and the filter needs "
            f"{_TYPES_SINCE} (Apache Kafka 3.8); list without types, or include {CLASSIC}"
        )


def listed_groups(broker: int, response: ListGroupsResponse) -> Iterator[GroupRow]:
    for group in response.groups:
        yield GroupRow(group.group_id, group.group_state, group.group_type, group.protocol_type, broker)


@operation
def describe_group(cluster: Cluster, group: str) -> Program[GroupDescription]:
    """A group and its members. Raises BrokerRefused with GROUP_ID_NOT_FOUND if the group does not exist."""

    def attempt() -> Program[GroupDescription]:
        for describe in (_describe_consumer_group, _describe_classic_group, describe_share_group, describe_from_list):
            description = yield from describe(cluster, group)
            if description is not None:
                return description
        raise BrokerRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group!r}")

    return (yield from cluster.retrying(attempt))


def _describe_consumer_group(cluster: Cluster, group: str) -> Program[GroupDescription | None]:
    description = yield from _described(cluster, group, wire.ConsumerGroupDescribeRequest(group_ids=[group]))
    return None if description is None else consumer_description(description, (yield from cluster.coordinator(group)))


def describe_share_group(cluster: Cluster, group: str) -> Program[GroupDescription | None]:
    """None for a group of another type, and from a broker that has no share groups."""
    description = yield from _described(cluster, group, share_wire.ShareGroupDescribeRequest(group_ids=[group]))
    return None if description is None else share_description(description, (yield from cluster.coordinator(group)))


def _described(cluster: Cluster, group: str, message: Request[Any]) -> Program[Any]:
    try:
        response = yield from cluster.at_coordinator(group, message)
    except UnsupportedRequest:
        return None
    [description] = response.groups
    if description.error_code in _NO_CONSUMER_GROUP:
        return None
    raise_for_error(description, f"group {group!r}")
    return description


def consumer_description(description: wire.DescribedGroup, coordinator: int) -> GroupDescription:
    return _description(description, CONSUMER, coordinator, [_member(member) for member in description.members])


def _description(
    description: wire.DescribedGroup | share_wire.DescribedGroup,
    group_type: str,
    coordinator: int,
    members: list[MemberRow],
) -> GroupDescription:
    return GroupDescription(
        description.group_id,
        description.group_state,
        group_type,
        group_type,
        description.assignor_name,
        coordinator,
        members,
        description.group_epoch,
        description.assignment_epoch,
    )


def _member(member: wire.Member) -> MemberRow:
    return MemberRow(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        _partitions(member.assignment),
        _MEMBER_TYPES.get(member.member_type, ""),
        member.rack_id,
        tuple(member.subscribed_topic_names),
        # Apache Kafka shows "" once a member has dropped its expression.
        member.subscribed_topic_regex or None,
        member.member_epoch,
        _partitions(member.target_assignment),
    )


def _partitions(assignment: wire.Assignment | share_wire.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(TopicName(topic.topic_name), index)
        for topic in assignment.topic_partitions
        for index in topic.partitions
    )


def share_description(description: share_wire.DescribedGroup, coordinator: int) -> GroupDescription:
    members = [
        MemberRow(
            member.member_id,
            None,
            member.client_id,
            member.client_host,
            _partitions(member.assignment),
            SHARE,
            member.rack_id,
            tuple(member.subscribed_topic_names),
            epoch=member.member_epoch,
        )
        for member in description.members
    ]
    return _description(description, SHARE, coordinator, members)


def _describe_classic_group(cluster: Cluster, group: str) -> Program[GroupDescription | None]:
    response = yield from cluster.at_coordinator(group, DescribeGroupsRequest(groups=[group]))
    description = response.groups[0]
    # Before version 6 an unknown group, or one of another type, is answered as Dead, without an error.
    if description.error_code == ErrorCode.GROUP_ID_NOT_FOUND or (
        not description.error_code and description.group_state == "Dead"
    ):
        return None
    raise_for_error(description, f"group {group!r}")
    return classic_description(description, (yield from cluster.coordinator(group)))


def classic_description(description: DescribedGroup, coordinator: int) -> GroupDescription:
    has_consumers = description.protocol_type == CONSUMER
    return GroupDescription(
        description.group_id,
        description.group_state,
        CLASSIC,
        description.protocol_type,
        description.protocol_data,
        coordinator,
        [_classic_member(member, has_consumers) for member in description.members],
        pending=tuple(
            itertools.starmap(
                PendingMember,
                zip(
                    description.pending_member_ids,
                    description.pending_until_ms,
                    description.pending_hosts,
                    strict=False,
                ),
            )
        ),
        awaited=tuple(description.awaited_member_ids),
    )


def _classic_member(member: DescribedGroupMember, is_consumer: bool) -> MemberRow:
    subscription = _subscription(member.member_metadata) if is_consumer else Subscription(())
    return MemberRow(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        decode_member_assignment(member.member_assignment) if is_consumer else (),
        CLASSIC,
        subscription.rack,
        subscription.topics,
    )


def _subscription(metadata: bytes) -> Subscription:
    """A member's subscription; an empty one while the group rebalances, and for one that cannot be read."""
    try:
        return decode_subscription(metadata) if metadata else Subscription(())
    except CorruptBatch:
        return Subscription(())


def describe_from_list(cluster: Cluster, group: str) -> Program[GroupDescription | None]:
    """A group of a type that has no description here, with the type and state of its coordinator's list."""
    broker = yield from cluster.coordinator(group)
    link = yield from cluster.link(broker)
    if not link.versions.supports(ListGroupsRequest, _TYPES_SINCE):
        return None
    response = yield from cluster.request(ListGroupsRequest(types_filter=list(_NOT_DESCRIBED)), broker=broker)
    raise_for_error(response, f"groups of broker {broker}")
    for row in listed_groups(broker, response):
        if row.group == group:
            return GroupDescription(group, row.state, row.group_type, row.protocol_type, "", broker, [])
    return None
