"""A consumer group of the new protocol (KIP-848), as its records describe it.

Only ``apply`` changes a group (see ``modern.group``). A partition that two members claim belongs to the one that
claimed it last; the other one's release leaves it there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from oncelog.base.ids import GroupId, MemberId, TopicId, TopicName
from oncelog.core.groups.consumer.member import ClassicMetadata, ConsumerMember
from oncelog.core.groups.model import CONSUMER_PROTOCOL
from oncelog.core.groups.model import Protocol as Offer
from oncelog.core.groups.modern.group import FIRST_EPOCH, ModernGroup
from oncelog.core.groups.modern.members import MemberState, Partitions, bytes_of_names
from oncelog.core.groups.modern.topics import Topics
from oncelog.records.internal.consumer_group_records import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    CurrentMemberKey,
    CurrentMemberValue,
    Key,
    MemberKey,
    MemberValue,
    RegexKey,
    RegexValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetMemberKey,
    TargetMemberValue,
    Value,
)

_MEMBER_STATES: Final = {state.value: state for state in MemberState}
_NO_OWNERS: Final[Mapping[int, MemberId]] = {}


class ConsumerGroupState(Enum):
    """The state of a group, by the words that describe it."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matches, by the metadata of ``version`` at ``timestamp_ms``."""

    topics: frozenset[TopicName] = frozenset()
    version: int = 0
    timestamp_ms: int = 0


UNRESOLVED = ResolvedRegex()


class SubscribedTopics:
    """The existing topics among those that a member names or its regular expression matches.

    A member that waits for partitions asks at every heartbeat, about few topics of the many it may subscribe to.
    """

    def __init__(self, named: Collection[TopicName], matched: Collection[TopicName], topics: Topics) -> None:
        self._named = named
        self._matched = matched
        self._topics = topics

    def __contains__(self, topic: object) -> bool:
        name = self._topics.name_of(TopicId(topic)) if isinstance(topic, bytes) else None
        return name is not None and (name in self._named or name in self._matched)

    def __bool__(self) -> bool:
        return any(self._topics.id_of(name) is not None for names in (self._named, self._matched) for name in names)


class ConsumerGroup(ModernGroup[ConsumerMember]):
    """The persisted state of one group."""

    protocol = "consumer"

    def __init__(self, group_id: GroupId) -> None:
        super().__init__(group_id)
        self.static_members: dict[str, MemberId] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.resolving_until_ms = 0
        """End of the time in which the result of a running resolution is awaited. Soft."""
        self._owners: dict[TopicId, dict[int, MemberId]] = {}
        self._topic_subscribers: Counter[TopicName] = Counter()
        self._regex_subscribers: Counter[str] = Counter()
        self._assignors: Counter[str] = Counter()
        self._classic_offers: Counter[str] = Counter()
        """The number of classic members that offer each protocol."""
        self._classic_count = 0

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def owner(self, topic: TopicId, partition: int) -> MemberId | None:
        """The member that has a partition or has not given it up yet."""
        return self._owners.get(topic, {}).get(partition)

    def owners_of(self, topic: TopicId) -> Mapping[int, MemberId]:
        return self._owners.get(topic, _NO_OWNERS)

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member_id: MemberId, instance_id: str | None) -> Partitions:
        """A member's share of the target. A static member has that of the instance before, whatever its id was."""
        owner = member_id if instance_id is None else self.static_members.get(instance_id)
        return {} if owner is None else self.target.get(owner, {})

    def assigned_before(self, member_id: MemberId, instance_id: str | None) -> Partitions:
        """The share that an assignor lets a member keep."""
        if instance_id is not None:
            member_id = self.static_members.get(instance_id, member_id)
        return self.target.get(member_id, {})

    @property
    def regex_counts(self) -> Mapping[str, int]:
        """The number of members that subscribe by each expression."""
        return self._regex_subscribers

    def regex_subscribers(self, regex: str) -> int:
        return self._regex_subscribers[regex]

    def resolved(self, regex: str) -> ResolvedRegex:
        return self.regexes.get(regex, UNRESOLVED)

    def topics_of(self, member: ConsumerMember) -> frozenset[TopicName]:
        """The topics that a member subscribes to by name and by its regular expression."""
        return member.topics | self.resolved(member.regex).topics if member.regex else member.topics

    def subscribed_topics_of(self, member: ConsumerMember, topics: Topics) -> SubscribedTopics:
        """The existing topics that a member subscribes to, looked up one by one."""
        return SubscribedTopics(member.topics, self.resolved(member.regex).topics, topics)

    def topic_ids_of(self, member: ConsumerMember, topics: Topics) -> frozenset[TopicId]:
        """The existing topics that a member subscribes to."""
        ids = (topics.id_of(name) for name in self.topics_of(member))
        return frozenset(topic for topic in ids if topic is not None)

    def subscribed_topics(
        self,
        removed: Iterable[ConsumerMember] = (),
        added: ConsumerMember | None = None,
        dropped_regexes: Iterable[str] = (),
        resolved: Mapping[str, ResolvedRegex] | None = None,
    ) -> set[TopicName]:
        """All topics that the group subscribes to after members and expressions have changed."""
        counts = self._topic_subscribers.copy()
        for member in removed:
            counts.subtract(member.topics)
        names = {name for name, count in counts.items() if count > 0}
        if added is not None:
            names |= added.topics
        dropped = set(dropped_regexes)
        regexes = self.regexes if resolved is None else resolved
        return names.union(*(resolution.topics for regex, resolution in regexes.items() if regex not in dropped))

    def preferred_assignor(
        self, before: ConsumerMember | None, after: ConsumerMember | None, configured: Collection[str]
    ) -> str:
        """The configured assignor that most members name after one of them has changed, or the first configured one."""
        counts = self._assignors.copy()
        if before is not None and before.assignor is not None:
            counts[before.assignor] -= 1
        if after is not None and after.assignor is not None:
            counts[after.assignor] += 1
        # A name may have been configured when a member joined, or at another broker: Apache Kafka fails then.
        named = [name for name, count in counts.items() if count > 0 and name in configured]
        return max(named, key=lambda name: (counts[name], name), default=next(iter(configured)))

    def is_classic_without(self, leaving: Collection[ConsumerMember]) -> bool:
        """True if all members but those that leave use the classic protocol."""
        classic = self._classic_count - sum(member.classic is not None for member in leaving)
        return classic == len(self.members) - len(leaving)

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """True if a classic member with these protocols may join: all classic members offer one of them."""
        return protocol_type == CONSUMER_PROTOCOL and any(
            self._classic_offers[name] == self._classic_count for name in protocols
        )

    def apply(self, key: Key, value: Value | None) -> None:
        """Take over one record; None is a tombstone."""
        match key, value:
            case ConsumerGroupKey(), ConsumerGroupValue():
                self.epoch, self.metadata_hash = value
            case ConsumerGroupKey(), None:
                self.epoch, self.metadata_hash = FIRST_EPOCH, 0
            case TargetEpochKey(), TargetEpochValue():
                self.target_epoch, self.target_timestamp_ms = value
            case TargetEpochKey(), None:
                self.target_epoch, self.target_timestamp_ms = FIRST_EPOCH, 0
            case TargetMemberKey(), TargetMemberValue():
                share = {topic: frozenset(partitions) for topic, partitions in value.partitions.items()}
                self._set_target(MemberId(key.member), share)
            case TargetMemberKey(), None:
                self._set_target(MemberId(key.member), None)
            case RegexKey(), RegexValue():
                names = frozenset(TopicName(name) for name in value.topics)
                self._set_regex(key.regex, ResolvedRegex(names, value.version, value.timestamp_ms))
            case RegexKey(), None:
                self._set_regex(key.regex, None)
            case MemberKey(), MemberValue():
                self._subscribe(MemberId(key.member), value)
            case MemberKey(), None:
                self._remove(MemberId(key.member))
            case CurrentMemberKey(), CurrentMemberValue():
                self._assign(MemberId(key.member), value)
            case CurrentMemberKey(), None:
                self._unassign(MemberId(key.member))

    def _set_regex(self, regex: str, resolution: ResolvedRegex | None) -> None:
        before = self.regexes.get(regex)
        if before is not None:
            self._held_bytes -= len(regex) + bytes_of_names(before.topics)
        if resolution is None:
            self.regexes.pop(regex, None)
        else:
            self.regexes[regex] = resolution
            self._held_bytes += len(regex) + bytes_of_names(resolution.topics)

    def _subscribe(self, member_id: MemberId, value: MemberValue) -> None:
        before = self.members.get(member_id)
        classic = value.classic
        member = (before or ConsumerMember(member_id))._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(map(TopicName, value.topics)),
            regex=value.regex or "",
            assignor=value.assignor,
            classic=None
            if classic is None
            else ClassicMetadata(classic.session_timeout_ms, tuple(Offer(*offer) for offer in classic.protocols)),
        )
        self._count(before, member)
        self._set_member(member_id, member)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id

    def _remove(self, member_id: MemberId) -> None:
        self._unassign(member_id)
        member = self.members.get(member_id)
        self._set_member(member_id, None)
        self._count(member, None)
        # A successor under the same instance id may have been added before.
        if member is not None and self.static_members.get(member.instance_id or "") == member_id:
            del self.static_members[member.instance_id or ""]

    def _count(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        names_before, names_after = (member.topics if member else frozenset[TopicName]() for member in (before, after))
        # At once: a member may name 100,000 topics.
        self._topic_subscribers.update(names_after - names_before)
        _decrement(self._topic_subscribers, names_before - names_after)
        for member, step in ((before, -1), (after, 1)):
            if member is None:
                continue
            regexes = [member.regex] if member.regex else []
            assignors = [] if member.assignor is None else [member.assignor]
            offers = set[str]() if member.classic is None else {offer.name for offer in member.classic.protocols}
            self._classic_count += step * (member.classic is not None)
            for counts, names in (
                (self._regex_subscribers, regexes),
                (self._assignors, assignors),
                (self._classic_offers, offers),
            ):
                counts.update(names) if step > 0 else _decrement(counts, names)

    def _assign(self, member_id: MemberId, value: CurrentMemberValue) -> None:
        before = self.members.get(member_id) or ConsumerMember(member_id)
        self._release(before)
        member = before._replace(
            epoch=value.epoch,
            previous_epoch=value.previous_epoch,
            state=_MEMBER_STATES.get(value.state, MemberState.UNKNOWN),
            assigned=value.assigned,
            pending_revocation=value.pending_revocation,
        )
        self._set_member(member_id, member)
        for topic, partitions in _shares_of(member):
            owned = dict.fromkeys(partitions, member_id)
            if topic in self._owners:
                self._owners[topic].update(owned)
            else:
                self._owners[topic] = owned

    def _unassign(self, member_id: MemberId) -> None:
        member = self.members.get(member_id)
        if member is not None:
            self._release(member)
            fresh = ConsumerMember(member_id)
            member = member._replace(
                epoch=fresh.epoch,
                previous_epoch=fresh.previous_epoch,
                state=fresh.state,
                assigned=fresh.assigned,
                pending_revocation=fresh.pending_revocation,
            )
            self._set_member(member_id, member)

    def _release(self, member: ConsumerMember) -> None:
        for topic, partitions in _shares_of(member):
            owners = self._owners.get(topic)
            if owners is None:
                continue
            for partition in partitions:
                if owners.get(partition) == member.member_id:
                    del owners[partition]
            if not owners:
                del self._owners[topic]


def _shares_of(member: ConsumerMember) -> Iterator[tuple[TopicId, Mapping[int, int]]]:
    # A topic may come twice.
    yield from member.assigned.items()
    yield from member.pending_revocation.items()


def _decrement(counts: Counter[Any], names: Iterable[str]) -> None:
    for name in names:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]
