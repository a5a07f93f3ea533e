"""The programs of a group member in the consumer protocol (KIP-848): heartbeats, offsets under the newest epoch.

Rules:
1. Every heartbeat, of whichever program, goes through one lock: one is outstanding at a time.
2. Offsets are committed and fetched under the member's newest epoch. It fences as well as that of the assignment: only
   owned partitions are committed, and no other member gets them before they are released, or lost with the epoch.
3. STALE_MEMBER_EPOCH means that a heartbeat has brought, or will bring, a newer epoch: the request is repeated with it.
4. A partition that this client's metadata lacks is taken once a look-up has found it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.client.errors import BrokerRefused, ClientError, UnsupportedRequest
from oncelog.client.machine.assigned_partitions import AssignedPartitions
from oncelog.client.machine.consumer_group import FENCING, MEMBER_NAMES_ITSELF_FROM, ConsumerGroupMember, State
from oncelog.client.machine.offsets import Committed, Membership
from oncelog.client.programs.cluster import Cluster
from oncelog.client.programs.group import MemberPrograms, commit_offsets, committed_offsets
from oncelog.client.programs.steps import Acquire, Program, call
from oncelog.wire.message import Request
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

T = TypeVar("T")
_LONGEST_PAUSE_MS: Final = 60_000
"""While nothing is due: a release ends the pause."""


class ConsumerMemberPrograms(MemberPrograms):
    def __init__(
        self, cluster: Cluster, member: ConsumerGroupMember, assigned: AssignedPartitions, read_committed: bool
    ) -> None:
        super().__init__(cluster, member.group, assigned, read_committed)
        self.member = member
        self._exchanging = cluster.environment.lock()
        self._looked_up: dict[TopicPartition, int | None] = {}
        """Since when each partition had been assigned as its start position was looked up last."""
        self._metadata_due_ms = 0
        """When to ask again for assigned partitions that the metadata lacks."""

    @property
    def has_joined(self) -> bool:
        return self.member.is_settled

    @property
    def revocable(self) -> tuple[TopicPartition, ...] | None:
        return self.member.revocable or None

    @property
    def is_lost(self) -> bool:
        return self.member.is_lost

    @property
    def startable(self) -> tuple[TopicPartition, ...] | None:
        partitions = tuple(p for p in self.member.takeable if self._cluster.view.partition(p) is not None)
        member = self.member
        is_first = member.state is State.JOINED and not self.assigned.is_assigned and not member.is_reporting
        return partitions if partitions or (is_first and not self._lacking) else None

    @property
    def _lacking(self) -> bool:
        view = self._cluster.view
        return bool(self.member.unnamed_topics) or any(view.partition(p) is None for p in self.member.takeable)

    def pause_ms(self, now_ms: int) -> int:
        due_ms = self.member.heartbeat_due_ms
        pause = _LONGEST_PAUSE_MS if due_ms is None else due_ms - now_ms
        if self._lacking:
            pause = min(pause, self._metadata_due_ms - now_ms)
        return max(0, pause)

    def advance(self) -> Program[None]:
        yield Acquire(self._exchanging)
        try:
            yield from self._cluster.retrying(self._heartbeat)
        finally:
            self._exchanging.release()
        yield from self._look_up_topics()

    def take(self, positions: dict[TopicPartition, int]) -> dict[TopicPartition, int] | None:
        looked_up = self._looked_up
        taken = self.member.take(p for p in positions if looked_up.get(p) == self.member.assigned_since(p))
        if not taken and self.assigned.is_assigned:
            return None
        self.assigned.extend(taken, self.member.epoch, self.member.member_id)
        return {partition: positions[partition] for partition in taken}

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        partitions = tuple(partitions)
        self.member.release(partitions)
        self.assigned.reduce(partitions)
        if self.member.state is State.UNJOINED and not self.member.owned:
            self.assigned.revoke()

    def commit(self) -> Program[bool]:
        if self.member.is_lost:
            return False
        is_refused = False
        offsets = self.assigned.begin_commit(self._cluster.now_ms())
        try:
            yield from self._with_newest_epoch(
                lambda: commit_offsets(self._cluster, self._group, offsets, self.assigned.membership)
            )
        except BrokerRefused as error:
            if not self.member.is_lost:
                self.member.refused(error.code)
            is_refused = True
        self.assigned.end_commit(offsets)
        return not is_refused

    def give_up(self) -> Program[None]:
        yield from self._coordinator.say_if_reachable(self.member.give_up())

    def _goodbye(self) -> Request[Any] | None:
        return self.member.leave()

    def start_positions(self, partitions: tuple[TopicPartition, ...]) -> Program[dict[TopicPartition, int]]:
        self._looked_up = {partition: self.member.assigned_since(partition) for partition in partitions}
        try:
            return (yield from super().start_positions(partitions))
        except BrokerRefused as error:
            if error.code not in FENCING:
                raise
            # The partitions are no longer this member's.
            self.member.refused(error.code)
            return {}

    def _committed(self, partitions: tuple[TopicPartition, ...]) -> Program[dict[TopicPartition, Committed]]:
        def attempt() -> Program[dict[TopicPartition, Committed]]:
            member = Membership(self.member.epoch, self.member.member_id)
            return committed_offsets(self._cluster, self._group, partitions, require_stable=True, membership=member)

        return (yield from self._with_newest_epoch(attempt))

    def _with_newest_epoch(self, attempt: Callable[[], Program[T]]) -> Program[T]:
        deadline = self._cluster.now_ms() + self._cluster.config.retry_timeout_ms
        number = 0
        while True:
            epoch = self.member.epoch
            try:
                return (yield from attempt())
            except BrokerRefused as error:
                is_stale = error.code == ErrorCode.STALE_MEMBER_EPOCH and self.member.state is State.JOINED
                if not is_stale or self._cluster.now_ms() >= deadline:
                    raise
            if self.member.epoch == epoch:
                yield from self._cluster.pause(number)
            if self.member.epoch == epoch:
                self.member.heartbeat_soon()
                yield from self.advance()
            number += 1

    def _heartbeat(self) -> Program[None]:
        cluster, member = self._cluster, self.member
        if (due_ms := member.heartbeat_due_ms) is None or cluster.now_ms() < due_ms:
            return
        try:
            link = yield from self._coordinator.open()
            version = link.versions.choose(ConsumerGroupHeartbeatRequest)
            if version < MEMBER_NAMES_ITSELF_FROM and member.pattern is not None:
                raise UnsupportedRequest(
                    f"{link.address} is too old for a pattern of group {self._group!r}: name the topics"
                )
            member.use_version(version)
            request = member.next_request(cluster.now_ms())
            if request is None:
                return
            response = yield from call(link, request, version)
        except ClientError:
            self._coordinator.forget()
            raise
        member.answered(response, cluster.now_ms())
        if member.state is State.JOINED and not member.is_lost:
            self.assigned.renew(member.epoch, member.member_id)

    def _look_up_topics(self) -> Program[None]:
        cluster, member = self._cluster, self.member
        if not self._lacking or cluster.now_ms() < self._metadata_due_ms:
            return
        self._metadata_due_ms = cluster.now_ms() + cluster.config.retry_backoff_max_ms
        try:
            unnamed = member.unnamed_topics
            if unnamed:
                member.learn((yield from cluster.topic_names(unnamed)))
            incomplete = {p.topic for p in member.takeable if cluster.view.partition(p) is None}
            if incomplete:
                yield from cluster.metadata(sorted(incomplete))
        except ClientError as error:
            if not cluster.may_pass(error):
                raise
