"""A consumer in a group: its membership, its partitions' positions, and fetching them.

Rules: delivery is at least once: only what the caller reported through ``processed`` is committed, and it is committed
before partitions are given up. Membership is kept up from ``poll``, which has to be called more often than the
session time-out. The coordinator has a connection of its own, because a join may wait on it for minutes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.blocking.link import Link, now_ms
from oncelog.client.blocking.offsets import commit_offsets, committed_offsets
from oncelog.client.errors import BrokerRefused, ClientError, Closed, UnknownTopic
from oncelog.client.machine.assigned_partitions import TOPIC_CHECK_MS, AssignedPartitions, Reset
from oncelog.client.machine.group import GroupMember, GroupSettings, State
from oncelog.client.machine.offsets import GroupMetadata
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.wire.message import Request

OnAssigned = Callable[[dict[TopicPartition, int]], None]
OnRevoked = Callable[[tuple[TopicPartition, ...]], None]


class GroupConsumer:
    """One member of a group. ``reset`` says where to begin where the group has no offset; ``none`` raises.

    ``on_assigned`` is called with the positions that it begins at, and with nothing when its partitions go.
    ``on_revoked`` is called before that, while their offsets can still be committed (by a transaction too).
    """

    def __init__(
        self,
        client: Client,
        group: str,
        topics: Sequence[str],
        *,
        settings: GroupSettings | None = None,
        fetch: FetchSettings | None = None,
        reset: Reset = "earliest",
        on_assigned: OnAssigned | None = None,
        on_revoked: OnRevoked | None = None,
    ) -> None:
        self._client = client
        self._member = GroupMember(group, topics, settings or GroupSettings())
        self._fetcher = Fetcher(client, fetch or FetchSettings())
        self._assigned = AssignedPartitions(group, self._member.settings.instance_id, reset, now_ms())
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._link: Link | None = None
        self._check_due_ms = now_ms() + TOPIC_CHECK_MS
        self._counts: dict[str, int] = {}
        self._is_new = False
        """True while a new assignment is not started yet, or starting it failed half-way."""
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(commit=kind is None or kind is KeyboardInterrupt)

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions assigned to this member now."""
        return self._assigned.owned

    @property
    def has_joined(self) -> bool:
        """True while the consumer is a member with an assignment, which may be empty."""
        return self._member.state is State.STABLE

    @property
    def group_metadata(self) -> GroupMetadata:
        """The identity under which a transactional producer commits offsets of the assigned partitions (KIP-447)."""
        return self._assigned.metadata

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset that will be fetched."""
        return self._fetcher.positions.of(partition)

    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """Fetch from other offsets next, as after an aborted transaction. Partitions of others are passed over."""
        self._fetcher.positions.seek({p: offset for p, offset in positions.items() if p in self._assigned.owned})

    def poll(self, wait_ms: int = 500) -> list[Fetched]:
        """Keep up the membership, then return what has been fetched, possibly nothing. Raises what ``request`` does,
        and Closed."""
        if self._is_closed:
            raise Closed(f"the consumer of group {self._member.group!r}")
        if self._assigned.is_commit_due(now_ms()):
            self.commit()
        self._keep_up()
        if not len(self._fetcher):
            time.sleep(min(wait_ms, 100) / 1000)
            return []
        return [one for one in self._fetcher.poll(wait_ms) if self._usable(one)]

    def processed(self, partition: TopicPartition, next_offset: int) -> None:
        """Mark records before ``next_offset`` as processed: they may be committed."""
        self._assigned.processed(partition, next_offset)

    def commit(self) -> None:
        """Commit what was processed. The member joins again if the coordinator demands it."""
        offsets = self._assigned.begin_commit(now_ms())
        try:
            commit_offsets(self._client, self._member.group, offsets, self._assigned.membership)
        except BrokerRefused as error:
            self._member.refused(error.code)
        self._assigned.end_commit(offsets)

    def close(self, *, commit: bool = True) -> None:
        """Commit if wanted, leave the group, and close the connections."""
        self._is_closed = True
        try:
            if commit and self._on_revoked is not None and self._assigned.owned:
                self._on_revoked(self._assigned.owned)
            if commit and self._assigned.has_uncommitted:
                self.commit()
            goodbye = self._member.leave()
            if goodbye is not None:
                self._coordinator().call(goodbye)
        except ClientError:
            pass  # the session time-out does the rest
        finally:
            self._fetcher.close()
            if self._link is not None:
                self._link.close()

    def _usable(self, fetched: Fetched) -> bool:
        """True if ``fetched`` is records; a position out of the log's range is reset, other errors are raised."""
        if not self._assigned.is_out_of_range(fetched):
            return True
        self.seek(self._listed(self._assigned.beginnings([fetched.partition])))
        return False

    def _keep_up(self) -> None:
        """Drive the membership until it is stable and no request is due."""
        if self._member.is_leader and now_ms() >= self._check_due_ms:
            self._check_topics()
        while (request := self._member.next_request(now_ms())) is not None:
            if self._member.state is not State.STABLE:
                self._revoke()
            was = self._member.state
            self._exchange(request)
            if self._member.state is State.ASSIGNING:
                self._counts = self._partition_counts()
                self._member.assign(self._counts)
            elif was is State.SYNCING and self._member.state is State.STABLE:
                self._is_new = True
        if self._is_new:
            self._assign()
            self._is_new = False

    def _exchange(self, request: Request[Any]) -> None:
        """Send one request to the coordinator and apply its answer, retrying while the coordinator moves."""
        wait_ms = self._client.config.request_timeout_ms
        if self._member.state is State.UNJOINED:
            wait_ms += self._member.settings.rebalance_timeout_ms

        def attempt() -> None:
            try:
                answer = self._coordinator().call(request, timeout_ms=wait_ms)
            except ClientError:
                self._client.forget_coordinator(self._member.group)
                raise
            self._member.answered(answer, now_ms())

        self._client.retrying(attempt)

    def _coordinator(self) -> Link:
        broker = self._client.coordinator(self._member.group)
        info = self._client.view.brokers.get(broker)
        if self._link is None or not self._link.is_open or info is None or info.address != self._link.address:
            if self._link is not None:
                self._link.close()
            self._link = self._client.connect(broker)
        return self._link

    def _partition_counts(self) -> dict[str, int]:
        topics = self._client.metadata(self._member.topics_to_assign())
        return {name: len(info.partitions) for name, info in topics.items() if info.exists}

    def _check_topics(self) -> None:
        """Call for a rebalance if a topic has appeared or grown; done by the group's leader."""
        self._check_due_ms = now_ms() + TOPIC_CHECK_MS
        if self._partition_counts() != self._counts:
            self._member.rejoin()

    def _revoke(self) -> None:
        """Commit processed offsets while the generation is still valid, then drop the assignment."""
        if not self._assigned.owned:
            return
        if self._on_revoked is not None:
            self._on_revoked(self._assigned.owned)
        if self._assigned.has_uncommitted and self._member.generation >= 0:
            with contextlib.suppress(ClientError):
                self.commit()
        self._assigned.revoke()
        self._fetcher.assign({})
        if self._on_assigned is not None:
            self._on_assigned({})

    def _assign(self) -> None:
        """Start on the new assignment, from the committed offsets."""
        member, assigned = self._member, self._assigned
        assigned.assign(member.assignment, member.generation, member.member_id)
        owned = assigned.owned
        committed = committed_offsets(self._client, member.group, owned, require_stable=True) if owned else {}
        positions, missing = assigned.start(owned, committed)
        positions |= self._listed(missing)
        self._fetcher.assign(positions)
        if self._on_assigned is not None:
            self._on_assigned(positions)

    def _listed(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        committed = self._fetcher.positions.settings.read_committed
        found = self._client.list_offsets(wanted, read_committed=committed) if wanted else {}
        return {p: one.offset for p, one in found.items()}


def require_topics(client: Client, topics: Sequence[str]) -> None:
    """Raise UnknownTopic unless every topic exists: a group would wait for it for ever."""
    for topic in topics:
        if not client.topic(topic).exists:
            raise UnknownTopic(f"topic {topic!r}")
