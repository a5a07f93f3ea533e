"""A group consumer: its membership, its partitions' positions, and fetching.

Rules: delivery is at least once: only offsets reported through ``processed`` are committed, before partitions are
revoked. ``poll`` maintains the membership, and has to be called more often than the session time-out.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.errors import ClientError, Closed, UnknownTopic
from oncelog.client.machine.assigned_partitions import AssignedPartitions, Reset
from oncelog.client.machine.group import GroupMember, GroupSettings, State
from oncelog.client.machine.offsets import GroupMetadata
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.client.programs.group import MemberPrograms

OnAssigned = Callable[[dict[TopicPartition, int]], None]
OnRevoked = Callable[[tuple[TopicPartition, ...]], None]


class GroupConsumer:
    """One member of a group. ``reset`` says where to start if the group has no offset; ``none`` raises.

    ``on_assigned`` is called with the start positions, and with nothing when the partitions are revoked. ``on_revoked``
    is called before that, while their offsets can still be committed (by a transaction too).
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
        settings, fetch = settings or GroupSettings(), fetch or FetchSettings()
        self._run = client.run
        self._now_ms = client.cluster.now_ms
        self._member = GroupMember(group, topics, settings)
        self._fetcher = Fetcher(client, fetch)
        self._assigned = AssignedPartitions(group, settings.instance_id, reset, self._now_ms())
        self._programs = MemberPrograms(client.cluster, self._member, self._assigned, fetch.read_committed)
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._unreturned: list[Fetched] = []
        """Fetched, and not returned yet: their positions have moved already."""
        self._is_new = False
        """True until a new assignment has started; starting it may fail midway."""
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
        """True while the consumer is a member with an assignment, possibly an empty one."""
        return self._member.state is State.STABLE

    @property
    def group_metadata(self) -> GroupMetadata:
        """The identity under which a transactional producer commits offsets of the assigned partitions (KIP-447)."""
        return self._assigned.metadata

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset to fetch."""
        return self._fetcher.positions.of(partition)

    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """Continue at other offsets, as after an aborted transaction. Unassigned partitions are ignored."""
        self._unreturned = [fetched for fetched in self._unreturned if fetched.partition not in positions]
        self._fetcher.positions.seek({p: offset for p, offset in positions.items() if p in self._assigned.owned})

    def poll(self, wait_ms: int = 500) -> list[Fetched]:
        """Maintain the membership, then return what has been fetched, possibly nothing. Raises what ``request`` raises,
        and Closed.
        """
        if self._is_closed:
            raise Closed(f"the consumer of group {self._member.group!r}")
        if self._assigned.is_commit_due(self._now_ms()):
            self.commit()
        self._keep_up()
        if not len(self._fetcher):
            time.sleep(min(wait_ms, 100) / 1000)
            return []
        if not self._unreturned:
            self._unreturned = self._fetcher.poll(wait_ms)
        self._reset_positions()
        results, self._unreturned = self._unreturned, []
        return results

    def processed(self, partition: TopicPartition, next_offset: int) -> None:
        """Mark records before ``next_offset`` as processed: they may be committed."""
        self._assigned.processed(partition, next_offset)

    def commit(self) -> None:
        """Commit the processed offsets. The member rejoins if the coordinator demands it."""
        self._run(self._programs.commit())

    def close(self, *, commit: bool = True) -> None:
        """Commit if ``commit``, leave the group, and close the connections."""
        self._is_closed = True
        try:
            if commit and self._on_revoked is not None and self._assigned.owned:
                self._on_revoked(self._assigned.owned)
            if commit and self._assigned.has_uncommitted:
                self.commit()
            self._run(self._programs.leave())
        except ClientError:
            pass  # the session time-out does the rest
        finally:
            self._fetcher.close()
            self._programs.close()

    def _reset_positions(self) -> None:
        """Reset positions outside the log. A failure leaves the rest to the next poll."""
        for fetched in [fetched for fetched in self._unreturned if fetched.error_code]:
            # The failed partition is not fetched any more: begin there again, whatever happens below.
            self._fetcher.positions.seek({fetched.partition: fetched.position})
            self._unreturned = [other for other in self._unreturned if other is not fetched]
            if self._assigned.is_out_of_range(fetched):
                self.seek(self._run(self._programs.reset_positions(fetched.partition)))

    def _keep_up(self) -> None:
        """Drive the membership until it is stable and no request is due."""
        member = self._member
        self._run(self._programs.check_topics())
        while (request := member.next_request(self._now_ms())) is not None or member.state is State.ASSIGNING:
            if member.state is not State.STABLE:
                self._revoke()
            was = member.state
            self._run(self._programs.exchange(request))
            if was is State.SYNCING and member.state is State.STABLE:
                self._is_new = True
        if self._is_new:
            self._assign()
            self._is_new = False

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
        self._unreturned.clear()
        self._fetcher.assign({})
        if self._on_assigned is not None:
            self._on_assigned({})

    def _assign(self) -> None:
        """Start the new assignment at the committed offsets."""
        member, assigned = self._member, self._assigned
        assigned.assign(member.assignment, member.generation, member.member_id)
        positions = self._run(self._programs.start_positions(assigned.owned))
        self._fetcher.assign(positions)
        if self._on_assigned is not None:
            self._on_assigned(positions)


def require_topics(client: Client, topics: Sequence[str]) -> None:
    """Raise UnknownTopic unless every topic exists: a group would wait for a missing one for ever."""
    for topic in topics:
        if not client.topic(topic).exists:
            raise UnknownTopic(f"topic {topic!r}")
