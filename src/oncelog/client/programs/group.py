"""A group member's requests to its coordinator, and a group's committed offsets.

Rules: one request of a member is outstanding at a time, and ``machine.group`` decides what follows a refusal. The
coordinator has a connection for the membership alone, because a join may wait on it for minutes. Offset requests and
responses are those of ``machine.offsets``; error codes are raised, not returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from oncelog.base.ids import TopicPartition
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.client.machine.assigned_partitions import TOPIC_CHECK_MS, AssignedPartitions
from oncelog.client.machine.group import GroupMember, State
from oncelog.client.machine.offsets import (
    LAST_VERSION_BY_NAME,
    Committed,
    Membership,
    check_commit,
    committed_in,
    offset_commit_request,
    offset_fetch_request,
)
from oncelog.client.programs.cluster import Cluster
from oncelog.client.programs.log_offsets import offsets_at
from oncelog.client.programs.operation import operation
from oncelog.client.programs.steps import Link, Program, call
from oncelog.wire.message import Request


@operation
def committed_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = False
) -> Program[dict[TopicPartition, Committed]]:
    """The committed offsets of a group, for some partitions or all, without those that have none.

    ``require_stable`` waits for transactions with pending offsets (KIP-447); a consumer that starts from these offsets
    needs it.
    """
    message = offset_fetch_request(group, partitions, require_stable=require_stable)

    def attempt() -> Program[dict[TopicPartition, Committed]]:
        response = yield from cluster.at_coordinator(group, message, at_most=LAST_VERSION_BY_NAME)
        return committed_in(response, group)

    return (yield from cluster.retrying(attempt))


@operation
def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, Committed],
    membership: Membership | None = None,
) -> Program[None]:
    """Commit offsets for a group. Raises BrokerRefused for the first refused partition."""
    if not offsets:
        return
    message = offset_commit_request(group, offsets, membership or Membership())

    def attempt() -> Program[None]:
        check_commit((yield from cluster.at_coordinator(group, message, at_most=LAST_VERSION_BY_NAME)), group)

    yield from cluster.retrying(attempt)


class MemberPrograms:
    """The programs of one group member; the consumer decides which of them is due."""

    def __init__(
        self, cluster: Cluster, member: GroupMember, assigned: AssignedPartitions, read_committed: bool
    ) -> None:
        self.member = member
        self.assigned = assigned
        self.topics_due_ms = cluster.now_ms() + TOPIC_CHECK_MS
        """When the group's leader checks again for new topics or partitions."""
        self._cluster = cluster
        self._read_committed = read_committed
        self._link: Link | None = None
        self._counts: dict[str, int] = {}

    def close(self) -> None:
        if self._link is not None:
            self._link.abort()

    def exchange(self, request: Request[Any] | None) -> Program[None]:
        """Send one request to the coordinator and apply its response, retrying while the coordinator moves.

        A leader then assigns the partitions; if that raises, the next call (also with None) does so.
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
            link = yield from self._coordinator()
            answer = yield from call(link, request, timeout_ms=wait_ms)
        except ClientError:
            # It may have moved.
            cluster.forget_coordinator(member.group)
            raise
        member.answered(answer, cluster.now_ms())

    def check_topics(self) -> Program[None]:
        """Start a rebalance if topics appeared or grew; done at intervals by the group's leader."""
        if not self.member.is_leader or self._cluster.now_ms() < self.topics_due_ms:
            return
        self.topics_due_ms = self._cluster.now_ms() + TOPIC_CHECK_MS
        if (yield from self._partition_counts()) != self._counts:
            self.member.rejoin()

    def start_positions(self, owned: tuple[TopicPartition, ...]) -> Program[dict[TopicPartition, int]]:
        """The start positions: the committed offsets, or as ``reset`` says."""
        if not owned:
            return {}
        committed = yield from committed_offsets(self._cluster, self.member.group, owned, require_stable=True)
        positions, missing = self.assigned.start(owned, committed)
        return positions | (yield from self._listed(missing))

    def reset_positions(self, partition: TopicPartition) -> Program[dict[TopicPartition, int]]:
        """The position to continue at for a partition whose position is outside the log."""
        return (yield from self._listed(self.assigned.beginnings([partition])))

    def commit(self) -> Program[bool]:
        """Commit the processed offsets. Returns False if that was refused and the member rejoins."""
        is_refused = False
        offsets = self.assigned.begin_commit(self._cluster.now_ms())
        try:
            yield from commit_offsets(self._cluster, self.member.group, offsets, self.assigned.membership)
        except BrokerRefused as error:
            self.member.refused(error.code)
            is_refused = True
        self.assigned.end_commit(offsets)
        return not is_refused

    def leave(self) -> Program[None]:
        """Leave the group, unless the member is static. Raises ClientError."""
        goodbye = self.member.leave()
        if goodbye is not None:
            link = yield from self._coordinator()
            yield from call(link, goodbye)

    def _coordinator(self) -> Program[Link]:
        broker = yield from self._cluster.coordinator(self.member.group)
        info = self._cluster.view.brokers.get(broker)
        link = self._link
        if link is None or not link.is_open or info is None or info.address != link.address:
            if link is not None:
                link.abort()
            link = self._link = yield from self._cluster.connect(broker)
        return link

    def _partition_counts(self) -> Program[dict[str, int]]:
        topics = yield from self._cluster.metadata(self.member.topics_to_assign())
        return {name: len(info.partitions) for name, info in topics.items() if info.exists}

    def _listed(self, wanted: Mapping[TopicPartition, int]) -> Program[dict[TopicPartition, int]]:
        return (yield from offsets_at(self._cluster, wanted, read_committed=self._read_committed))
