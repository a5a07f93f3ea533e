"""Decisions about the start offsets of a share group's partitions: alter and delete them, and delete the group.

Each is in two parts: the share coordinator makes or deletes state between them. A group that changes has no members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID, GroupId, Offset, TopicId, TopicName
from oncelog.core.groups.modern.group import Refused
from oncelog.core.groups.modern.members import Partitions
from oncelog.core.groups.modern.topics import Topics
from oncelog.core.groups.share import records
from oncelog.core.groups.share.decision import PartitionState
from oncelog.core.groups.share.group import ShareGroup
from oncelog.core.groups.share.heartbeat import share_group
from oncelog.core.groups.share.records import ShareRecord
from oncelog.core.groups.share.state_topics import StateTopics, TopicPartitions, union

_MAX_FENCE: Final = 2**30
"""The group's epoch is a 32-bit number, and has to rise further."""
NOTHING_TO_DELETE: Final = "There is no offset information to delete."


class TopicResult(NamedTuple):
    """The outcome for a topic, before the share coordinator has acted."""

    name: TopicName
    topic_id: TopicId = NO_TOPIC_ID
    error_code: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(slots=True)
class OffsetsDecision:
    """The first part of a change of offsets."""

    group_id: GroupId
    records: list[ShareRecord] = field(default_factory=list)
    states: list[PartitionState] = field(default_factory=list)
    """State that the share coordinator has to make or delete."""
    topics: list[TopicResult] = field(default_factory=list)


def decide_alter(
    group: object | None, group_id: GroupId, offsets: Mapping[TopicName, Mapping[int, Offset]], topics: Topics
) -> OffsetsDecision:
    """Begin to set start offsets, of existing partitions; a group that does not exist is made. Raises Refused."""
    group = ShareGroup(group_id) if group is None else share_group(group, group_id)
    _check_empty(group)
    decision = OffsetsDecision(group_id)
    altered = {}
    for name, starts in offsets.items():
        topic = topics.id_of(name)
        if topic is None:
            continue
        altered[topic] = TopicPartitions(name, frozenset(starts))
        decision.states += (PartitionState(topic, number, group.epoch, start) for number, start in starts.items())
    if altered:
        state = (group.state_topics or StateTopics()).begin_initializing(altered)
        decision.records.append(records.state_topics(group_id, state, topics.name_of))
    return decision


def decide_initialized(
    group: object | None, group_id: GroupId, done: Partitions, failed: Partitions, topics: Topics, fenced_by: int = 0
) -> list[ShareRecord]:
    """The share coordinator has made the state of some partitions, and refused that of others, for it has one of the
    epoch ``fenced_by``: of an earlier group of the same id, if that is higher than the group's.
    """
    if not isinstance(group, ShareGroup) or not (done or failed):
        return []
    decided: list[ShareRecord] = []
    if group.epoch < fenced_by <= _MAX_FENCE:
        decided.append(records.epoch(group_id, fenced_by + 1, group.metadata_hash))
    state = group.state_topics or StateTopics()
    # A late outcome must not bring back a topic that was deleted meanwhile.
    existing = {topic: numbers for topic, numbers in done.items() if topics.name_of(topic) is not None}
    after = state.finish_initializing(existing, failed, topics.name_of)
    if after != state:
        decided.append(records.state_topics(group_id, after, topics.name_of))
    return decided


def decide_delete(
    group: object | None, group_id: GroupId, names: Iterable[TopicName], topics: Topics
) -> OffsetsDecision:
    """Begin to delete the offsets of topics. Raises Refused."""
    group = share_group(group, group_id)
    _check_empty(group)
    decision, state = OffsetsDecision(group_id), group.state_topics
    if state is None:
        return decision
    deleted = []
    for name in names:
        topic = topics.id_of(name)
        if topic is None:
            message = "This server does not host this topic-partition."
            decision.topics.append(TopicResult(name, NO_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message))
        elif topic not in state.initialized and topic not in state.deleting:
            result = TopicResult(name, NO_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOTHING_TO_DELETE)
            decision.topics.append(result)
        else:
            # A deletion that failed before is repeated.
            known = state.initialized.get(topic)
            partitions = known.partitions if known is not None else range(topics.partitions_of(topic))
            decision.states += (PartitionState(topic, number) for number in sorted(partitions))
            deleted.append(topic)
    decision.records.append(records.state_topics(group_id, state.begin_deleting(deleted), topics.name_of))
    return decision


def decide_deleted(
    group: object | None, group_id: GroupId, deleted: Sequence[TopicId], topics: Topics
) -> list[ShareRecord]:
    """The share coordinator has deleted the state of topics."""
    if not isinstance(group, ShareGroup) or group.state_topics is None:
        return []
    state = group.state_topics.finish_deleting(deleted)
    return [records.state_topics(group_id, state, topics.name_of)]


def decide_group_deletion(group: object | None, group_id: GroupId, topics: Topics) -> OffsetsDecision:
    """Begin to delete a group: its share state goes first. A group of another kind, or none, has no states. Raises
    Refused for a group with members.
    """
    decision = OffsetsDecision(group_id)
    if not isinstance(group, ShareGroup):
        return decision
    _check_empty(group)
    state = group.state_topics
    if state is None:
        return decision
    known = union(state.initialized, state.initializing)
    # The state of deleted topics goes by itself, and no share coordinator takes requests for them.
    candidates = {topic: named for topic, named in known.items() if topics.name_of(topic) is not None}
    for topic in sorted(state.deleting):
        name = topics.name_of(topic)
        if name is not None:
            partitions = TopicPartitions(name, frozenset(range(topics.partitions_of(topic))))
            candidates = union(candidates, {topic: partitions})
    deleting = StateTopics(deleting=frozenset(candidates))
    decision.records.append(records.state_topics(group_id, deleting, topics.name_of))
    decision.states += (
        PartitionState(topic, number) for topic, named in candidates.items() for number in sorted(named.partitions)
    )
    return decision


def decide_topics_gone(group: ShareGroup, topics: Topics) -> list[ShareRecord]:
    """Topics were deleted: the share coordinator drops their state by itself."""
    state, gone = group.state_topics, topics_gone(group, topics)
    if state is None or not gone:
        return []
    return [records.state_topics(group.group_id, state.without_topics(gone), topics.name_of)]


def topics_gone(group: ShareGroup, topics: Topics) -> frozenset[TopicId]:
    """The topics known to a group that exist no longer."""
    state = group.state_topics
    known = () if state is None else state.known() | state.deleting
    return frozenset(topic for topic in known if topics.name_of(topic) is None)


def _check_empty(group: ShareGroup) -> None:
    if group.members:
        raise Refused(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
