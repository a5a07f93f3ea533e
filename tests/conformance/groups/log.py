"""The log of a group as a cleaner may leave it, and the state that it must load to."""

from __future__ import annotations

import random

from oncelog.core.groups.classic.group import ClassicGroup
from oncelog.core.groups.consumer.group import ConsumerGroup
from tests.conformance.groups.comparison import EncodedRecord, assigned


def half_compacted(batches: list[list[EncodedRecord]], entropy: random.Random) -> list[EncodedRecord]:
    """The records of a log as a cleaner may have left them at a random time."""
    known = entropy.randint(0, len(batches))
    return compacted(batches, known, entropy.randint(0, known), drops_tombstones=entropy.random() < 0.5)


def compacted(
    batches: list[list[EncodedRecord]], known: int, cleaned: int, *, drops_tombstones: bool
) -> list[EncodedRecord]:
    """The records of a log that a cleaner has worked on, at boundaries of batches.

    It knows the last record of each key in the first ``known`` batches, and has cleaned the first ``cleaned`` ones:
    records of theirs are gone if it knows a later one, and tombstones if their time is over.
    """
    last = {key: (number, place) for number in range(known) for place, (key, _) in enumerate(batches[number])}
    result = []
    for number, batch in enumerate(batches):
        for place, (key, value) in enumerate(batch):
            is_gone = number < cleaned and (last[key] != (number, place) or (value is None and drops_tombstones))
            if not is_gone:
                result.append((key, value))
    return result


def state_of(group: ConsumerGroup | ClassicGroup | None) -> object:
    """Everything that a load must restore of a group."""
    if isinstance(group, ClassicGroup):
        assignments = {member.member_id: assigned(member.assignment) for member in group.members.values()}
        return group.generation, group.protocol_name, assignments, sorted(group.static_members.items())
    if group is None:
        return None
    members = sorted((member_id, tuple(member)) for member_id, member in group.members.items())
    owners = {
        (topic, partition): group.owner(topic, partition)
        for member in group.members.values()
        for assigned in (member.assigned, member.pending_revocation)
        for topic, partitions in assigned.items()
        for partition in partitions
    }
    return (
        (group.epoch, group.metadata_hash, group.target_epoch, group.target_timestamp_ms),
        members,
        {member_id: share for member_id, share in group.target.items() if share},
        sorted(group.regexes.items()),
        sorted(group.static_members.items()),
        owners,
    )
