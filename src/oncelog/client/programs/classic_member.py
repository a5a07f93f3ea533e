"""The programs of a group member in the classic protocol: join, sync, heartbeats, and a leader's assignment.

While partitions are assigned and the group rebalances, the member only sends heartbeats; it rejoins once they are
released.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from oncelog.base.ids import TopicPartition
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.client.machine.assigned_partitions import TOPIC_CHECK_MS, AssignedPartitions
from oncelog.client.machine.group import GroupMember, State
from oncelog.client.programs.cluster import Cluster
from oncelog.client.programs.group import MemberPrograms, commit_offsets
from oncelog.client.programs.steps import Program, call
from oncelog.wire.message import Request


class ClassicMemberPrograms(MemberPrograms):
    def __init__(
        self, cluster: Cluster, member: GroupMember, assigned: AssignedPartitions, read_committed: bool
    ) -> None:
        super().__init__(cluster, member.group, assigned, read_committed)
        self.member = member
        self.topics_due_ms = cluster.now_ms() + TOPIC_CHECK_MS
        """When the group's leader checks again for new topics or partitions."""
        self._counts: dict[str, int] = {}

    @property
    def has_joined(self) -> bool:
        return self.member.state is State.STABLE

    @property
    def revocable(self) -> tuple[TopicPartition, ...] | None:
        # Rule: the generation of ``assign`` counts, never a newer one.
        held, member = self.assigned.metadata, self.member
        is_valid = (held.generation, held.member_id) == (member.generation, member.member_id)
        if not self.assigned.is_assigned or (member.state is State.STABLE and is_valid):
            return None
        return self.assigned.owned

    @property
    def is_lost(self) -> bool:
        return self.revocable is not None and self.member.generation < 0

    @property
    def startable(self) -> tuple[TopicPartition, ...] | None:
        if self.member.state is not State.STABLE or self.assigned.is_assigned:
            return None
        return self.member.assignment

    def pause_ms(self, now_ms: int) -> int:
        member = self.member
        until_due = member.heartbeat_due_ms - now_ms
        if member.state is State.STABLE:
            return max(0, until_due)
        if not self.assigned.is_assigned:
            return 0
        return until_due if until_due > 0 else member.settings.heartbeat_interval_ms

    def advance(self) -> Program[None]:
        member, now_ms, was_member = self.member, self._cluster.now_ms(), self.has_joined
        is_called = self.assigned.is_assigned and not was_member
        yield from self.exchange(member.keep_alive(now_ms) if is_called else member.next_request(now_ms))
        if was_member:
            yield from self.check_topics()
        elif self.has_joined:
            self.topics_due_ms = self._cluster.now_ms() + TOPIC_CHECK_MS

    def exchange(self, request: Request[Any] | None) -> Program[None]:
        """Send one request to the coordinator and apply its response, retrying while the coordinator moves.

        A leader then assigns; if that raises, the next call (also with None) does so.
        """
        cluster, member = self._cluster, self.member
        if request is not None:
            wait_ms = cluster.config.request_timeout_ms
            if member.state is State.UNJOINED:
                wait_ms += member.settings.rebalance_timeout_ms
            yield from cluster.retrying(partial(self._exchange, request, wait_ms))
        if member.state is State.ASSIGNING:
            self._counts = yield from self._partition_counts()
            member.assign(self._counts)

    def _exchange(self, request: Request[Any], wait_ms: int) -> Program[None]:
        cluster, member = self._cluster, self.member
        try:
            link = yield from self._coordinator.open()
            answer = yield from call(link, request, timeout_ms=wait_ms)
        except ClientError:
            self._coordinator.forget()
            raise
        member.answered(answer, cluster.now_ms())

    def check_topics(self) -> Program[None]:
        """Start a rebalance if topics appeared or grew; done at intervals by the group's leader."""
        if not self.member.is_leader or self._cluster.now_ms() < self.topics_due_ms:
            return
        self.topics_due_ms = self._cluster.now_ms() + TOPIC_CHECK_MS
        if (yield from self._partition_counts()) != self._counts:
            self.member.rejoin()

    def take(self, positions: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        self.assigned.assign(self.member.assignment, self.member.generation, self.member.member_id)
        return positions

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        self.assigned.revoke()

    def commit(self) -> Program[bool]:
        is_refused = False
        offsets = self.assigned.begin_commit(self._cluster.now_ms())
        try:
            yield from commit_offsets(self._cluster, self.member.group, offsets, self.assigned.membership)
        except BrokerRefused as error:
            self.member.refused(error.code)
            is_refused = True
        self.assigned.end_commit(offsets)
        return not is_refused

    def give_up(self) -> Program[None]:
        # Without heartbeats the session is soon over.
        yield from ()

    def _goodbye(self) -> Request[Any] | None:
        return self.member.leave()

    def _partition_counts(self) -> Program[dict[str, int]]:
        topics = yield from self._cluster.metadata(self.member.topics_to_assign())
        return {name: len(info.partitions) for name, info in topics.items() if info.exists}
