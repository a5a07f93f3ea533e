"""W20 to W22: the answers to a member of a group agree with its requests and with earlier answers."""

# They hold for a member alone; W17 to W19 compare members.

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID
from oncelog.sim.checkers.wire.exchange import Exchange, PartitionKey, Report, Topics
from oncelog.sim.checkers.wire.ownership import assignment_in, subscription_in
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from oncelog.wire.messages.heartbeat import HeartbeatResponse
from oncelog.wire.messages.join_group import JoinGroupResponse
from oncelog.wire.messages.offset_commit import OffsetCommitResponse
from oncelog.wire.messages.sync_group import SyncGroupResponse

FOREIGN: Final = "W20 partition of another topic"
REFUSED: Final = "W21 commit refused"
IN_VAIN: Final = "W22 rejoined in vain"


class _Held(NamedTuple):
    # Since the response with this index (`sent_at`) and epoch the partition has been the member's.
    sent_at: int
    epoch: int


@dataclass(slots=True)
class _Member:
    # None: not known.
    topics: frozenset[str] | None = None
    pattern: str | None = None
    epoch: int = 0
    held: dict[PartitionKey, _Held] = field(default_factory=dict)
    # Of the classic protocol: the last assignment, with its generation.
    last: tuple[int, frozenset[PartitionKey]] | None = None
    has_to_rejoin: bool = False


class MemberAnswers:
    # ``is_cluster``: a broker may not know of its successor, so W21 and W22 are off.

    def __init__(self, topics: Topics, report: Report, *, is_cluster: bool) -> None:
        self._topics = topics
        self._report = report
        self._is_cluster = is_cluster
        self._members: dict[tuple[str, str], _Member] = {}

    def forget_group(self, group_id: str) -> None:
        self._members = {key: member for key, member in self._members.items() if key[0] != group_id}

    def restarted(self, *, keeps_all: bool) -> None:
        if not keeps_all:
            self._members.clear()
        # The rebalance of a classic group may have ended with its coordinator.
        for member in self._members.values():
            member.has_to_rejoin = False

    def heartbeat_requested(self, exchange: Exchange) -> None:
        request = exchange.request
        member = self._members.get((request.group_id, request.member_id))
        if member is None:
            return
        if request.member_epoch <= 0:
            member.held.clear()
        elif request.topic_partitions is not None:
            kept = set(self._by_id(request.topic_partitions))
            member.held = {key: held for key, held in member.held.items() if key in kept}

    def heartbeat_answered(self, exchange: Exchange, response: ConsumerGroupHeartbeatResponse, index: int) -> None:
        request = exchange.request
        key = request.group_id, response.member_id or request.member_id
        if response.error_code or request.member_epoch < 0:
            self._members.pop(key, None)
            return
        member = self._members.setdefault(key, _Member())
        if request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None:
            member.topics = frozenset(request.subscribed_topic_names or ())
            member.pattern = request.subscribed_topic_regex
        member.epoch = max(member.epoch, response.member_epoch)
        if response.assignment is None:
            return
        assigned = frozenset(self._by_id(response.assignment.topic_partitions))
        self._check_topics(key, member, assigned)
        held = _Held(index, response.member_epoch)
        member.held = {partition: member.held.get(partition, held) for partition in assigned}

    def committed(self, exchange: Exchange, response: OffsetCommitResponse) -> None:
        # W21: a commit is refused for its epoch, although its partitions have been the member's since.
        request = exchange.request
        member = self._members.get((request.group_id, request.member_id))
        codes = {part.error_code for topic in response.topics for part in topic.partitions}
        epoch = request.generation_id_or_member_epoch
        if self._is_cluster or member is None or ErrorCode.STALE_MEMBER_EPOCH not in codes or epoch > member.epoch:
            return
        keys = [
            self._topics.key(topic.name, topic.topic_id, part.partition_index)
            for topic in request.topics
            for part in topic.partitions
        ]
        held = [member.held.get(key) if key is not None else None for key in keys]
        if all(
            since is not None and since.sent_at < exchange.received_index and since.epoch <= epoch for since in held
        ):
            names = ", ".join(self._topics.describe(key) for key in keys if key is not None)
            detail = f"in epoch {epoch}, now {member.epoch}, has had it throughout"
            self._report(REFUSED, f"{request.group_id}: {names} of {request.member_id}, which {detail}")

    def joined(self, exchange: Exchange, response: JoinGroupResponse) -> None:
        key = exchange.request.group_id, response.member_id
        subscription = subscription_in(exchange.request)
        if response.error_code or subscription is None:
            self._members.pop(key, None)
            return
        member = self._members.setdefault(key, _Member())
        member.topics, member.pattern = frozenset(subscription.topics), None

    def synced(self, exchange: Exchange, response: SyncGroupResponse) -> None:
        key = exchange.request.group_id, exchange.request.member_id
        member, assignment = self._members.get(key), assignment_in(response)
        if response.error_code or member is None or assignment is None:
            return
        named = (self._topics.key(name, NO_TOPIC_ID, partition) for name, partition in assignment.partitions)
        assigned = frozenset(partition for partition in named if partition is not None)
        self._check_topics(key, member, assigned)
        last = exchange.request.generation_id, assigned
        if member.has_to_rejoin and last == member.last and not self._is_cluster:
            self._report(IN_VAIN, f"{key[0]}: {key[1]} in generation {last[0]}")
        member.last, member.has_to_rejoin = last, False

    def classic_heartbeat_answered(self, exchange: Exchange, response: HeartbeatResponse) -> None:
        key = exchange.request.group_id, exchange.request.member_id
        member = self._members.get(key)
        if member is not None and response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            member.has_to_rejoin = True

    def _by_id(self, topics: Collection[Any]) -> Iterator[PartitionKey]:
        for topic in topics:
            for index in topic.partitions:
                key = self._topics.key(None, topic.topic_id, index)
                if key is not None:
                    yield key

    def _check_topics(self, member_key: tuple[str, str], member: _Member, assigned: Collection[PartitionKey]) -> None:
        # Successors of deleted topics go by id, and are not judged.
        for key in sorted(assigned, key=repr) if member.topics is not None else ():
            name = key[0]
            if isinstance(name, str) and not _subscribes(member, name):
                partition = self._topics.describe(key)
                self._report(FOREIGN, f"{member_key[0]}: {partition} is assigned to {member_key[1]}")


def _subscribes(member: _Member, name: str) -> bool:
    is_matched = bool(member.pattern) and re.fullmatch(member.pattern or "", name) is not None
    return is_matched or name in (member.topics or ())
