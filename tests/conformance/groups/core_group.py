"""One group of ours, driven like the judge's: operations in, answers, records and replies out.

It does what a shard does around the pure decisions: it applies records, keeps timers, and holds parked requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from oncelog.base.ids import GroupId, MemberId, TopicId, TopicName
from oncelog.core.groups.classic import persistence
from oncelog.core.groups.classic.group import ClassicGroup
from oncelog.core.groups.classic.membership import MemberDecisions
from oncelog.core.groups.classic.rebalance import Rebalance, TimerKey, TimerKind, Timers
from oncelog.core.groups.classic.states import GroupEvent, GroupState
from oncelog.core.groups.consumer.assignors import range as range_assignor
from oncelog.core.groups.consumer.assignors import uniform
from oncelog.core.groups.consumer.classic_members import (
    decide_classic_heartbeat,
    decide_classic_leave,
    decide_join,
    decide_sync,
)
from oncelog.core.groups.consumer.decision import ConsumerDecision, HeartbeatAnswer, MemberTimer, timers_after_load
from oncelog.core.groups.consumer.group import ConsumerGroup, ResolvedRegex
from oncelog.core.groups.consumer.heartbeat import ConsumerHeartbeat, decide_heartbeat, decide_leave
from oncelog.core.groups.consumer.offset_checks import check_commit, check_fetch
from oncelog.core.groups.consumer.records import AnyRecord, GroupRecord, group_tombstones
from oncelog.core.groups.consumer.regular_expressions import decide_resolution
from oncelog.core.groups.consumer.removal import decide_expiry
from oncelog.core.groups.consumer.settings import GroupLimits, MigrationPolicy
from oncelog.core.groups.model import GroupDecision, HeartbeatRequest, JoinRequest, LeavingMember, SyncRequest
from oncelog.core.groups.modern.group import Refused
from oncelog.core.groups.modern.topics import hash_of_topic
from oncelog.core.groups.settings import GroupSettings
from oncelog.records.internal.consumer_group_records import ConsumerGroupKey
from oncelog.records.internal.group_records import GroupMetadataKey, GroupMetadataValue
from tests.conformance.groups.comparison import decoded

GROUP = GroupId("g")
CLIENT, HOST = "client", "localhost/127.0.0.1"
RACKS = 4
_NEVER_LOST_MS = 2**62
TIMER_NAMES = {
    MemberTimer.SESSION: "session-timeout-g-",
    MemberTimer.REBALANCE: "rebalance-timeout-g-",
    MemberTimer.JOIN: "join-g-",
    MemberTimer.SYNC: "sync-g-",
}

TopicTable = dict[str, tuple[str, int]]
"""Topic → its id in hexadecimal, and its partitions."""


class TopicView:
    """The topics of the judge's metadata: partition p has replicas in the racks p and p + 1, of four."""

    def __init__(self, topics: TopicTable) -> None:
        self.version = 0
        self.version_with_new_topics = 0
        self.replace(topics)

    def replace(self, topics: TopicTable) -> None:
        self.topics = dict(topics)
        self.version += 1

    def id_of(self, name: TopicName) -> TopicId | None:
        return TopicId(bytes.fromhex(self.topics[name][0])) if name in self.topics else None

    def name_of(self, topic: TopicId) -> TopicName | None:
        names = (TopicName(name) for name, (topic_id, _) in self.topics.items() if topic_id == topic.hex())
        return next(names, None)

    def partitions_of(self, topic: TopicId) -> int:
        return next(count for topic_id, count in self.topics.values() if bytes.fromhex(topic_id) == topic)

    def hash_of(self, name: TopicName) -> int:
        topic_id, count = self.topics[name]
        racks = [[f"rack{index % RACKS}", f"rack{(index + 1) % RACKS}"] for index in range(count)]
        return hash_of_topic(TopicId(bytes.fromhex(topic_id)), name, racks)


@dataclass(slots=True)
class Outcome:
    """The result of an operation."""

    records: list[AnyRecord]
    answer: object = None
    released: list[tuple[int, object]] = field(default_factory=list)


class CoreGroup:
    """Our group, with the soft state that a shard would keep for it."""

    def __init__(
        self, topics: TopicTable, interval_ms: int, max_size: int, classic_max_size: int, policy: MigrationPolicy
    ) -> None:
        self.topics = TopicView(topics)
        self.now_ms = 1000
        self._to_resolve: frozenset[str] = frozenset()
        assignors = {"range": range_assignor.assign, "uniform": uniform.assign}
        self._limits = GroupLimits(
            assignors, interval_ms, max_size, migration=policy, classic_max_size=classic_max_size
        )
        # With a delay Apache Kafka may extend the first rebalance of a group for members of an earlier one.
        self._settings = GroupSettings(initial_rebalance_delay_ms=0, max_size=classic_max_size)
        self._restart()

    def _restart(self) -> None:
        self.group: ConsumerGroup | ClassicGroup | None = None
        self._deadlines: dict[str, int] = {}
        """The deadlines of a consumer group's timers, by the judge's names."""
        self.dropped_timers: set[tuple[str, int]] = set()
        """Timers that ended with their group, and their deadlines."""
        self.classic_timers = Timers()
        self._groups: dict[GroupId, ClassicGroup] = {}
        self._rebalance = Rebalance(self._settings, self.classic_timers)
        self._membership = MemberDecisions(self._groups, self._settings, self._rebalance)

    def heartbeat(self, operation: dict[str, Any]) -> Outcome:
        """A heartbeat of the new protocol. Raises Refused."""
        request = _request(operation)
        decide = decide_leave if request.epoch < 0 else decide_heartbeat
        decision = decide(self.group, request, self.topics, self._limits, self.now_ms)
        outcome = self._carry_out(decision)
        self._start_resolution(decision)
        assert isinstance(decision.answer, HeartbeatAnswer)
        return outcome

    def join(self, request: JoinRequest, token: int) -> Outcome:
        """A JoinGroup; its reply is among the released ones. Raises Refused."""
        if isinstance(self.group, ConsumerGroup) and self.group.members:
            decision = decide_join(self.group, request, self.topics, self._limits, self.now_ms)
            outcome = self._carry_out(decision)
            self._start_resolution(decision)
            return Outcome(outcome.records, None, [(token, decision.answer)])
        tombstones: list[AnyRecord] = []
        if isinstance(self.group, ConsumerGroup):
            tombstones += group_tombstones(self.group)
            self.apply(tombstones)
        outcome = self._carry_out_classic(self._membership.join(request, token, self.now_ms), token)
        self.group = self._groups.get(GROUP)
        return Outcome([*tombstones, *outcome.records], None, outcome.released)

    def sync(self, request: SyncRequest, token: int) -> Outcome:
        """A SyncGroup; its reply is among the released ones. Raises Refused."""
        if isinstance(self.group, ConsumerGroup) and self.group.members:
            decision = decide_sync(self.group, request, self.topics)
            self._carry_out(decision)
            return Outcome([], None, [(token, decision.answer)])
        return self._carry_out_classic(self._membership.sync(request, token, self.now_ms), token)

    def classic_heartbeat(self, request: HeartbeatRequest) -> Outcome:
        """A Heartbeat. Raises Refused."""
        if isinstance(self.group, ConsumerGroup):
            return self._carry_out(decide_classic_heartbeat(self.group, request))
        return self._carry_out_classic(self._membership.heartbeat(request, self.now_ms))

    def leave(self, leaving: list[LeavingMember]) -> Outcome:
        """A LeaveGroup."""
        if isinstance(self.group, ConsumerGroup):
            decision = decide_classic_leave(self.group, leaving, self.topics, self._limits, self.now_ms)
            return self._carry_out(decision)
        return self._carry_out_classic(self._membership.leave(GROUP, leaving, self.now_ms))

    def expire(self, key: str) -> Outcome | None:
        """The timer of this name expires; None if it does not run or is not due yet."""
        if isinstance(self.group, ConsumerGroup):
            if self._deadlines.get(key, self.now_ms + 1) > self.now_ms:
                return None
            del self._deadlines[key]
            member_id = key.removeprefix(next(name for name in TIMER_NAMES.values() if key.startswith(name)))
            decision = decide_expiry(self.group, MemberId(member_id), self.topics, self._limits, self.now_ms)
            return self._carry_out(decision)
        if not isinstance(self.group, ClassicGroup):
            return None
        timer = _classic_timer(key)
        if timer is None:
            return None
        if (self.classic_timers.deadline_of(timer) or self.now_ms + 1) > self.now_ms:
            return None
        self.classic_timers.cancel(timer)
        decision, now_ms = GroupDecision(), self.now_ms
        if timer.kind is TimerKind.SESSION:
            self._rebalance.session_expired(self.group, MemberId(timer.member_id), now_ms, decision)
        elif timer.kind is TimerKind.JOIN:
            self._rebalance.join_phase_expired(self.group, now_ms, decision)
        else:
            self._rebalance.sync_phase_expired(self.group, now_ms, decision)
        return self._carry_out_classic(decision)

    def due_timers(self) -> list[str]:
        """The names of timers that are due."""
        due = []
        names = [name for name, deadline_ms in self._deadlines.items() if deadline_ms <= self.now_ms]
        while (timer := self.classic_timers.pop_due(self.now_ms)) is not None:
            due.append(timer)
        for timer in due:
            self.classic_timers.schedule(timer, self.now_ms)
        return sorted([*names, *map(_classic_name, due)])

    def _start_resolution(self, decision: ConsumerDecision[Any]) -> None:
        # There is one resolution at a time, also of a group that has been converted meanwhile.
        self._to_resolve = self._to_resolve or decision.to_resolve
        if isinstance(self.group, ConsumerGroup):
            self.group.resolving_until_ms = _NEVER_LOST_MS if self._to_resolve else 0

    def resolve(self) -> list[GroupRecord]:
        """Resolve the expressions that are due, and apply the result."""
        if not self._to_resolve:
            return []
        expressions, self._to_resolve = self._to_resolve, frozenset()
        if not isinstance(self.group, ConsumerGroup):
            return []
        resolved = {
            regex: ResolvedRegex(
                frozenset(TopicName(name) for name in self.topics.topics if re.fullmatch(regex, name)),
                self.topics.version,
                self.now_ms,
            )
            for regex in expressions
        }
        self.group.resolving_until_ms = 0
        records = decide_resolution(self.group, resolved, self.topics)
        self.apply(records)
        return records

    def commit_codes(self, operation: dict[str, Any]) -> dict[str, list[str]] | str:
        """The error codes of a commit of all partitions, by topic, or one for all."""
        assert isinstance(self.group, ConsumerGroup)
        member_id, instance_id = MemberId(operation["member"]), operation["instance"]
        try:
            check = check_commit(
                self.group,
                member_id,
                instance_id,
                operation["epoch"],
                knows_epochs=operation["version"] >= 9,
                is_transactional=operation["transactional"],
            )
        except Refused as refused:
            return refused.code.name
        return {
            name: [
                check(TopicName(name), TopicId(bytes.fromhex(topic_id)), partition).name for partition in range(count)
            ]
            for name, (topic_id, count) in self.topics.topics.items()
        }

    def fetch_code(self, member_id: str | None, epoch: int) -> str:
        """The error code of an OffsetFetch."""
        assert isinstance(self.group, ConsumerGroup)
        try:
            check_fetch(self.group, None if member_id is None else MemberId(member_id), epoch)
        except Refused as refused:
            return refused.code.name
        return "NONE"

    def change_topics(self, topics: TopicTable, *, has_new: bool) -> None:
        self.topics.replace(topics)
        # The judge's coordinator takes its first update for one with new topics.
        if has_new or not self.topics.version_with_new_topics:
            self.topics.version_with_new_topics = self.topics.version
        if isinstance(self.group, ConsumerGroup):
            self.group.metadata_refresh_epoch = None

    def load(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Begin anew with the records of a log."""
        self._restart()
        self._to_resolve = frozenset()
        self.topics.version_with_new_topics = 0
        self.apply([decoded(record) for record in records])
        if isinstance(self.group, ConsumerGroup):
            self._set_timers(timers_after_load(self.group, self._limits))
        elif self.group is not None:
            decision = GroupDecision()
            for member in self.group.members.values():
                self._rebalance.restart_session(self.group, member, self.now_ms)
            if len(self.group.members) > self._settings.max_size:
                self._rebalance.prepare(self.group, self.now_ms, decision)

    def lead(self, member_id: str | None) -> None:
        """Let a member lead a classic group: the judge's leader is the first in the order of a hash map."""
        if isinstance(self.group, ClassicGroup) and member_id in self.group.members:
            self.group.leader = MemberId(member_id)

    def loaded_group(self, records: Iterable[tuple[bytes, bytes | None]]) -> ConsumerGroup | ClassicGroup | None:
        """The group that another coordinator loads from the records of a log."""
        other = CoreGroup(self.topics.topics, 0, 0, 0, MigrationPolicy.DISABLED)
        other.apply([decoded(record) for record in records])
        return other.group

    def apply(self, records: Iterable[AnyRecord]) -> None:
        """Apply records of either kind: the newest value of any decides the group's kind."""
        for key, value in records:
            if isinstance(key, GroupMetadataKey):
                assert value is None or isinstance(value, GroupMetadataValue)
                self._apply_classic(value)
                continue
            assert not isinstance(value, GroupMetadataValue)
            if value is not None and not isinstance(self.group, ConsumerGroup):
                self._drop_classic()
                self.group = ConsumerGroup(GROUP)
            if isinstance(self.group, ConsumerGroup):
                self.group.apply(key, value)
                if value is None and isinstance(key, ConsumerGroupKey):
                    self.group = None
                    self._drop_timers()

    def _apply_classic(self, value: GroupMetadataValue | None) -> None:
        if value is None:
            if isinstance(self.group, ClassicGroup):
                self._drop_classic()
                self.group = None
            return
        self._drop_classic()
        self._drop_timers()
        self.group = self._groups[GROUP] = persistence.group_of(GROUP, value)

    def _drop_timers(self) -> None:
        self.dropped_timers.update(self._deadlines.items())
        self._deadlines.clear()

    def _drop_classic(self) -> None:
        group = self._groups.pop(GROUP, None)
        if group is not None:
            for timer in [TimerKey(kind, GROUP) for kind in (TimerKind.JOIN, TimerKind.SYNC)]:
                self.dropped_timers.add((_classic_name(timer), self.classic_timers.deadline_of(timer) or 0))
            self._rebalance.forget(group)

    def _carry_out(self, decision: ConsumerDecision[Any]) -> Outcome:
        self.apply(decision.records)
        outcome = Outcome(decision.records, decision.answer, list(decision.released))
        if decision.downgrade is None:
            self._set_timers(decision.timers)
            return outcome
        group, rebalances = decision.downgrade
        self.group = self._groups[GROUP] = group
        for member in group.members.values():
            self._rebalance.restart_session(group, member, self.now_ms)
        if rebalances:
            classic = GroupDecision()
            self._rebalance.prepare(group, self.now_ms, classic)
            assert not classic.records
            outcome.released += classic.released
        return outcome

    def _set_timers(self, changes: Iterable[Any]) -> None:
        for member_id, timer, timeout_ms, keeps_running in changes:
            name = TIMER_NAMES[timer] + member_id
            if timeout_ms is None:
                self._deadlines.pop(name, None)
            elif not (keeps_running and name in self._deadlines):
                self._deadlines[name] = self.now_ms + timeout_ms

    def _carry_out_classic(self, decision: GroupDecision, token: int | None = None) -> Outcome:
        """Apply a classic decision as the shard does: an assignment in the log makes a generation stable."""
        records = [decoded(record) for record in decision.records]
        group = self._groups.get(GROUP)
        for _, value in records:
            if isinstance(value, GroupMetadataValue) and group is not None and value.members:
                _install_assignment(group, value)
        released = list(decision.released)
        if token is not None and decision.reply is not None:
            released.append((token, decision.reply))
        return Outcome(records, decision.reply, released)


def _classic_timer(key: str) -> TimerKey | None:
    """The timer of a classic group with the judge's name."""
    if key.startswith("heartbeat-g-"):
        return TimerKey(TimerKind.SESSION, GROUP, key.removeprefix("heartbeat-g-"))
    kind = {"join-g": TimerKind.JOIN, "sync-g": TimerKind.SYNC}.get(key)
    return None if kind is None else TimerKey(kind, GROUP)


def _classic_name(timer: TimerKey) -> str:
    kind = {TimerKind.SESSION: "heartbeat", TimerKind.JOIN: "join", TimerKind.SYNC: "sync"}[timer.kind]
    return f"{kind}-g-{timer.member_id}" if timer.member_id else f"{kind}-g"


def _install_assignment(group: ClassicGroup, value: GroupMetadataValue) -> None:
    assignment = persistence.assignments_of(value)
    if group.state is GroupState.COMPLETING_REBALANCE:
        for member in group.members.values():
            member.assignment = assignment.get(member.member_id, b"")
        group.move(GroupEvent.ASSIGNED, group.state_timestamp_ms)


def _request(operation: dict[str, Any]) -> ConsumerHeartbeat:
    topics, owned = operation.get("topics"), operation.get("owned")
    return ConsumerHeartbeat(
        GROUP,
        MemberId(operation["member"]),
        operation["epoch"],
        operation.get("instance"),
        operation.get("rack"),
        operation.get("timeout", -1),
        None if topics is None else frozenset(TopicName(name) for name in topics),
        operation.get("regex"),
        operation.get("assignor"),
        None if owned is None else {TopicId(bytes.fromhex(topic)): frozenset(owned[topic]) for topic in owned},
        CLIENT,
        HOST,
    )
