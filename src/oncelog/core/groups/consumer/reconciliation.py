"""The next step of one member towards its target assignment (KIP-848, "Reconciliation of the group").

A partition has one owner. A member gets a partition only after the owner has confirmed that it gave it up. Pure: the
caller supplies the owners and persists the result.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Final, NamedTuple

from oncelog.base.ids import MemberId, TopicId
from oncelog.core.groups.consumer.member import NOTHING, ConsumerMember, Epochs
from oncelog.core.groups.modern.members import MemberState, Partitions

OwnersOf = Callable[[TopicId], Mapping[int, MemberId]]
"""The owners of a topic's partitions; others are free."""
_NO_PARTITIONS: Final[frozenset[int]] = frozenset()


class Target(NamedTuple):
    """A member's share of the target assignment, and the epoch of the assignment."""

    epoch: int
    partitions: Partitions


def reconcile(
    member: ConsumerMember,
    target: Target,
    owned: Partitions | None,
    subscribed: Container[TopicId],
    owners_of: OwnersOf,
    *,
    subscription_changed: bool = False,
) -> ConsumerMember:
    """The member after one step; the same object when there is nothing to do.

    ``owned``: the partitions that the member reports; None when it reports none, so that it may still own all.
    """
    match member.state:
        case MemberState.STABLE if member.epoch == target.epoch:
            return _without_unsubscribed(member, owned, subscribed) if subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS if _owns_any(owned, member.pending_revocation):
            return _without_unsubscribed(member, owned, subscribed) if subscription_changed else member
        case _:
            return _next_assignment(member, target, owned, subscribed, owners_of)


def _next_assignment(
    member: ConsumerMember,
    target: Target,
    owned: Partitions | None,
    subscribed: Container[TopicId],
    owners_of: OwnersOf,
) -> ConsumerMember:
    kept: dict[TopicId, Mapping[int, int]] = {}
    revoked: dict[TopicId, Mapping[int, int]] = {}
    added: dict[TopicId, Mapping[int, int]] = {}
    is_waiting = False
    for topic in target.partitions.keys() | member.assigned.keys():
        # A topic that the member does not subscribe to (any longer) counts as absent from its target.
        missing = due = target.partitions.get(topic, _NO_PARTITIONS) if topic in subscribed else _NO_PARTITIONS
        if assigned := member.assigned.get(topic):
            missing = due.difference(assigned)
            if stays := {partition: epoch for partition, epoch in assigned.items() if partition in due}:
                kept[topic] = stays
            if goes := {partition: epoch for partition, epoch in assigned.items() if partition not in due}:
                revoked[topic] = goes
        if not missing:
            continue
        # All at once: a member may have 100,000 partitions.
        free = missing.difference(owners_of(topic))
        # A partition that this very member is giving up is free for it (KAFKA-16147).
        if releasing := member.pending_revocation.get(topic):
            free |= missing.intersection(releasing)
        is_waiting |= len(free) < len(missing)
        if free:
            added[topic] = {**kept.get(topic, {}), **dict.fromkeys(free, target.epoch)}
    # The member stays in its epoch until it confirms; then it moves to the target's epoch.
    if revoked and _owns_any(owned, revoked):
        return member.moved_to(member.epoch)._replace(
            state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=revoked
        )
    return member.moved_to(target.epoch)._replace(
        state=MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE,
        assigned=kept | added,
        pending_revocation=NOTHING,
    )


def _without_unsubscribed(
    member: ConsumerMember, owned: Partitions | None, subscribed: Container[TopicId]
) -> ConsumerMember:
    dropped = {topic: partitions for topic, partitions in member.assigned.items() if topic not in subscribed}
    if not dropped and (subscribed or member.pending_revocation):
        return member
    kept = {topic: partitions for topic, partitions in member.assigned.items() if topic not in dropped}
    revoked = dict(member.pending_revocation)
    for topic, partitions in dropped.items():
        revoked[topic] = {**revoked.get(topic, {}), **partitions}
    member = member.moved_to(member.epoch)._replace(assigned=kept)
    if revoked and _owns_any(owned, revoked):
        return member._replace(state=MemberState.UNREVOKED_PARTITIONS, pending_revocation=revoked)
    return member


def _owns_any(owned: Partitions | None, partitions: Epochs) -> bool:
    """True if the member still owns any of some partitions, or does not say."""
    return owned is None or any(not owned[topic].isdisjoint(partitions.get(topic, ())) for topic in owned)
