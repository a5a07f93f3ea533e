"""The assignor "simple" of share groups: a partition may go to several members.

Members share partitions evenly: if there are more members than partitions, each partition goes to as many members as
the others, ±1 over all; else each partition goes to one member. A member keeps what it has as long as that is even. All
members with one subscription share all of its partitions at once; with several subscriptions, topic by topic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from oncelog.base.ids import MemberId, TopicId
from oncelog.core.groups.modern.members import Partitions

NAME: Final = "simple"
Assignment = Mapping[MemberId, Partitions]
P = TypeVar("P")


class ShareMemberSpec(NamedTuple):
    topics: frozenset[TopicId]
    assigned: Partitions


class ShareSpec(NamedTuple):
    """The input of an assignor."""

    members: Mapping[MemberId, ShareMemberSpec]
    has_one_subscription: bool
    assignable: Mapping[TopicId, Sequence[int]]
    """The partitions of each topic that any member subscribes to, in order."""


def assign(spec: ShareSpec) -> Assignment:
    """Every member's partitions."""
    if spec.has_one_subscription:
        return _assign_together(spec)
    shares: dict[MemberId, dict[TopicId, frozenset[int]]] = {member_id: {} for member_id in spec.members}
    for topic, partitions in spec.assignable.items():
        subscribers = [member_id for member_id, member in spec.members.items() if topic in member.topics]
        assignable = set(partitions)
        held = {member_id: _kept(spec.members[member_id], topic, assignable) for member_id in subscribers}
        _balance(held, partitions)
        for member_id, numbers in held.items():
            if numbers:
                shares[member_id][topic] = frozenset(numbers)
    return shares


def _assign_together(spec: ShareSpec) -> Assignment:
    partitions = [(topic, number) for topic, numbers in spec.assignable.items() for number in numbers]
    assignable = {topic: set(numbers) for topic, numbers in spec.assignable.items()}
    held = {
        member_id: {
            (topic, number): None for topic in spec.assignable for number in _kept(member, topic, assignable[topic])
        }
        for member_id, member in spec.members.items()
    }
    _balance(held, partitions)
    return {member_id: _by_topic(share) for member_id, share in held.items()}


def _kept(member: ShareMemberSpec, topic: TopicId, assignable: set[int]) -> dict[int, None]:
    return dict.fromkeys(sorted(member.assigned.get(topic, frozenset()) & assignable))


def _by_topic(share: Iterable[tuple[TopicId, int]]) -> dict[TopicId, frozenset[int]]:
    topics: dict[TopicId, set[int]] = {}
    for topic, number in share:
        topics.setdefault(topic, set()).add(number)
    return {topic: frozenset(numbers) for topic, numbers in topics.items()}


def _balance(held: Mapping[MemberId, dict[P, None]], partitions: Sequence[P]) -> None:
    """Change what members hold so that they share the partitions evenly."""
    if not held or not partitions:
        return
    sharing = -(-len(held) // len(partitions))
    limits = _even_parts(sharing * len(partitions), held)
    holders: dict[P, dict[MemberId, None]] = {partition: {} for partition in partitions}
    for member_id, share in held.items():
        while len(share) > limits[member_id]:
            share.popitem()
        for partition in share:
            holders[partition][member_id] = None
    for partition, members in holders.items():
        for member_id in list(members)[: max(0, len(members) - sharing)]:
            del members[member_id]
            del held[member_id][partition]
    unfilled = deque(member_id for member_id, share in held.items() if len(share) < limits[member_id])
    for partition, members in holders.items():
        attempts = len(unfilled)
        while len(members) < sharing and attempts:
            member_id = unfilled[0]
            if member_id in members:
                unfilled.rotate(-1)
                attempts -= 1
                continue
            members[member_id] = None
            held[member_id][partition] = None
            if len(held[member_id]) < limits[member_id]:
                unfilled.rotate(-1)
            else:
                unfilled.popleft()
            attempts = len(unfilled)


def _even_parts(total: int, members: Iterable[MemberId]) -> dict[MemberId, int]:
    names = list(members)
    ends = [-(-total * (index + 1) // len(names)) for index in range(len(names))]
    return {name: end - start for name, start, end in zip(names, [0, *ends], ends, strict=False)}
