"""A share group (KIP-932), as its records describe it.

Only ``apply`` changes a group (see ``modern.group``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from oncelog.base.ids import GroupId, MemberId, TopicId, TopicName
from oncelog.core.groups.modern.group import FIRST_EPOCH, ModernGroup
from oncelog.core.groups.modern.members import JOINING_EPOCH, NO_PARTITIONS
from oncelog.core.groups.modern.topics import Topics
from oncelog.core.groups.share.member import ShareMember
from oncelog.core.groups.share.state_topics import StateTopics, TopicPartitions
from oncelog.records.internal.share_group_records import (
    NamedPartitions,
    ShareCurrentMemberKey,
    ShareCurrentMemberValue,
    ShareGroupKey,
    ShareGroupValue,
    ShareKey,
    ShareMemberKey,
    ShareMemberValue,
    ShareStateTopicsKey,
    ShareStateTopicsValue,
    ShareTargetEpochKey,
    ShareTargetEpochValue,
    ShareTargetMemberKey,
    ShareTargetMemberValue,
    ShareValue,
)


class ShareGroupState(Enum):
    """The state of a group, by the words that describe it."""

    EMPTY = "Empty"
    STABLE = "Stable"


class Deletion(NamedTuple):
    """Requests under way that delete the state of a topic, and when they are given up."""

    requests: int
    until_ms: int


class ShareGroup(ModernGroup[ShareMember]):
    """The persisted state of one group."""

    protocol = "share"

    def __init__(self, group_id: GroupId) -> None:
        super().__init__(group_id)
        self.state_topics: StateTopics | None = None
        """None: no record names any, other than a record that names no topic."""
        self.initializing_since_ms: dict[TopicId, int] = {}
        """When the initialization of a topic's state was last written down, or loaded. Soft."""
        self.uncertain: dict[TopicId, frozenset[int]] = {}
        """Partitions whose initialization may have failed: it is repeated at the next heartbeat. Soft."""
        self.first_counts: dict[TopicId, int] = {}
        """The number of partitions of a topic when its state was first made, as far as it is known. Soft."""
        self.deletions: dict[TopicId, Deletion] = {}
        """Topics whose state share coordinators are deleting now: it is not made meanwhile. Soft."""
        self.complete_until_ms: float | None = None
        """No subscribed partition lacks state until then, or can get it; None: to be found out. Soft: a steady member
        asks at each heartbeat."""
        self._state_count = 0
        self._has_unassigned: bool | None = None
        """Cached between records: a steady member asks at each heartbeat."""
        self._topic_subscribers: Counter[TopicName] = Counter()

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def subscribed_topics(
        self, before: ShareMember | None = None, after: ShareMember | None = None
    ) -> dict[TopicName, int]:
        """The number of subscribers of each topic after a member has changed, joined or left."""
        counts = self._topic_subscribers
        if before is None or after is None or not after.subscribes_as(before):
            counts = counts.copy()
            _count(counts, before, after)
        return counts

    def has_unassigned_partitions(self, topics: Topics) -> bool:
        """True if partitions of subscribed topics have got their state since the last assignment."""
        if self._has_unassigned is None:
            self._has_unassigned = self._compare_assignment(topics)
        return self._has_unassigned

    def forget_comparisons(self) -> None:
        """The group, or the topics, may have changed."""
        self._has_unassigned = self.complete_until_ms = None

    def begin_deletions(self, topics: Iterable[TopicId], until_ms: int) -> None:
        for topic in topics:
            before = self.deletions.get(topic)
            self.deletions[topic] = Deletion(1 if before is None else before.requests + 1, until_ms)

    def end_deletions(self, topics: Iterable[TopicId]) -> None:
        for topic in topics:
            before = self.deletions.pop(topic, None)
            if before is not None and before.requests > 1:
                self.deletions[topic] = before._replace(requests=before.requests - 1)

    def _compare_assignment(self, topics: Topics) -> bool:
        state = self.state_topics
        if not self.members or state is None or not self._topic_subscribers:
            return False
        assigned: dict[TopicId, set[int]] = {}
        for share in self.target.values():
            for topic, partitions in share.items():
                assigned.setdefault(topic, set()).update(partitions)
        return any(
            named.partitions ^ assigned.get(topic, frozenset())
            for topic, named in state.initialized.items()
            # A topic that was deleted, or made again, can never be assigned.
            if TopicName(named.name) in self._topic_subscribers and topics.id_of(TopicName(named.name)) == topic
        )

    def state_count(self) -> int:
        """See ``StateTopics.partition_count``."""
        return self._state_count

    def apply(self, key: ShareKey, value: ShareValue | None) -> None:
        """Take over one record; None is a tombstone."""
        self.forget_comparisons()
        match key, value:
            case ShareGroupKey(), ShareGroupValue():
                self.epoch, self.metadata_hash = value
            case ShareGroupKey(), None:
                self.epoch, self.metadata_hash = FIRST_EPOCH, 0
            case ShareTargetEpochKey(), ShareTargetEpochValue():
                self.target_epoch, self.target_timestamp_ms = value
            case ShareTargetEpochKey(), None:
                self.target_epoch, self.target_timestamp_ms = FIRST_EPOCH, 0
            case ShareTargetMemberKey(), ShareTargetMemberValue():
                share = {topic: frozenset(partitions) for topic, partitions in value.partitions.items()}
                self._set_target(MemberId(key.member), share)
            case ShareTargetMemberKey(), None:
                self._set_target(MemberId(key.member), None)
            case ShareMemberKey(), ShareMemberValue():
                self._subscribe(MemberId(key.member), value)
            case ShareMemberKey(), None:
                self._set_member(MemberId(key.member), None)
            case ShareCurrentMemberKey(), ShareCurrentMemberValue():
                self._assign(MemberId(key.member), value)
            case ShareCurrentMemberKey(), None:
                self._unassign(MemberId(key.member))
            case ShareStateTopicsKey(), ShareStateTopicsValue():
                self._set_state_topics(state_topics_of(value))
            case ShareStateTopicsKey(), None:
                self._set_state_topics(None)

    def _set_state_topics(self, state: StateTopics | None) -> None:
        self._state_count = 0 if state is None else state.partition_count()
        self.state_topics = state

    def _set_member(self, member_id: MemberId, member: ShareMember | None) -> None:
        _count(self._topic_subscribers, self.members.get(member_id), member)
        super()._set_member(member_id, member)

    def _subscribe(self, member_id: MemberId, value: ShareMemberValue) -> None:
        member = (self.members.get(member_id) or ShareMember(member_id))._replace(
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(map(TopicName, value.topics)),
        )
        self._set_member(member_id, member)

    def _assign(self, member_id: MemberId, value: ShareCurrentMemberValue) -> None:
        member = (self.members.get(member_id) or ShareMember(member_id))._replace(
            epoch=value.epoch,
            previous_epoch=value.previous_epoch,
            state=value.state,
            assigned={topic: frozenset(partitions) for topic, partitions in value.assigned.items()},
        )
        self._set_member(member_id, member)

    def _unassign(self, member_id: MemberId) -> None:
        member = self.members.get(member_id)
        if member is not None:
            fresh = member._replace(epoch=JOINING_EPOCH, previous_epoch=-1, assigned=NO_PARTITIONS)
            self._set_member(member_id, fresh)


def state_topics_of(value: ShareStateTopicsValue) -> StateTopics:
    initializing, initialized = (
        {topic: _partitions_of(named) for topic, named in topics.items()}
        for topics in (value.initializing, value.initialized)
    )
    return StateTopics(initializing, initialized, frozenset(value.deleting))


def _partitions_of(named: NamedPartitions) -> TopicPartitions:
    return TopicPartitions(named.name, frozenset(named.partitions))


def _count(counts: Counter[TopicName], before: ShareMember | None, after: ShareMember | None) -> None:
    names_before, names_after = _topics_of(before), _topics_of(after)
    # At once: a member may name 100,000 topics.
    counts.update(names_after - names_before)
    for name in names_before - names_after:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]


def _topics_of(member: ShareMember | None) -> frozenset[TopicName]:
    return frozenset() if member is None else member.topics
