"""A group consumer: its membership, its partitions' positions, and fetching.

Delivery is at least once: only offsets reported through ``processed`` are committed, before partitions are revoked.
``poll`` maintains the membership, and has to be called more often than the session time-out.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.errors import ClientError, Closed, UnknownTopic
from oncelog.client.machine.assigned_partitions import AssignedPartitions, Reset, without
from oncelog.client.machine.group import GroupSettings
from oncelog.client.machine.offsets import GroupMetadata
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.client.programs.group import MemberPrograms
from oncelog.client.programs.group_protocol import GroupProtocol, Subscription, choose_member

OnAssigned = Callable[[dict[TopicPartition, int]], None]
OnRevoked = Callable[[tuple[TopicPartition, ...]], None]


class GroupConsumer:
    """One member of a group. ``reset`` says where to start if the group has no offset; ``none`` raises.

    Topics are given by name, or as a regular expression that the coordinator matches with whole names (``pattern``: RE2
    syntax, consumer protocol). ``protocol`` is ``classic`` or ``consumer``; without it the group decides
    (docs/group-consumers.md).

    ``on_assigned`` is called with the start positions of further partitions, and with nothing when all are revoked;
    ``on_revoked`` with partitions whose offsets can still be committed (by a transaction too); ``on_lost`` with those
    that others may have already, because the group has expelled the member. Without it ``on_revoked`` is.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        topics: Sequence[str] = (),
        *,
        pattern: str | None = None,
        protocol: GroupProtocol | None = None,
        settings: GroupSettings | None = None,
        fetch: FetchSettings | None = None,
        reset: Reset = "earliest",
        on_assigned: OnAssigned | None = None,
        on_revoked: OnRevoked | None = None,
        on_lost: OnRevoked | None = None,
    ) -> None:
        settings, fetch = settings or GroupSettings(), fetch or FetchSettings()
        subscription = Subscription(group, topics, pattern, protocol, settings)
        self._run = client.run
        self._now_ms = client.cluster.now_ms
        self._fetcher = Fetcher(client, fetch)
        self._assigned = AssignedPartitions(group, settings.instance_id, reset, self._now_ms())
        self._choose = partial(choose_member, client.cluster, subscription, self._assigned, fetch.read_committed)
        self._programs: MemberPrograms | None = None
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_lost = on_revoked if on_lost is None else on_lost
        self._to_assign: dict[TopicPartition, int] | None = None
        """The start of further partitions until they are assigned, which may fail before."""
        self._unreturned: list[Fetched] = []
        """Fetched, and not returned yet: their positions have moved already."""
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
        return self._programs is not None and self._programs.has_joined

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
        and Closed."""
        if self._is_closed:
            raise Closed(f"the consumer of group {self._assigned.metadata.group!r}")
        if self._assigned.is_commit_due(self._now_ms()):
            self.commit()
        deadline_ms = self._now_ms() + wait_ms
        while True:
            programs = self._keep_up()
            if not len(self._fetcher):
                time.sleep(min(wait_ms, 100) / 1000)
                return []
            if not self._unreturned:
                # Heartbeats go on during a long wait.
                left_ms = max(0, deadline_ms - self._now_ms())
                self._unreturned = self._fetcher.poll(min(left_ms, programs.pause_ms(self._now_ms())))
            self._reset_positions(programs)
            results, self._unreturned = self._unreturned, []
            if results or self._now_ms() >= deadline_ms:
                return results

    def processed(self, partition: TopicPartition, next_offset: int) -> None:
        """Mark records before ``next_offset`` as processed: they may be committed."""
        self._assigned.processed(partition, next_offset)

    def commit(self) -> None:
        """Commit the processed offsets. The member rejoins if the coordinator demands it."""
        if self._programs is not None:
            self._run(self._programs.commit())

    def close(self, *, commit: bool = True) -> None:
        """Commit if ``commit``, leave the group, and close the connections."""
        self._is_closed = True
        try:
            is_lost = self._programs is not None and self._programs.is_lost
            callback = self._on_lost if is_lost else self._on_revoked
            if commit and callback is not None and self._assigned.owned:
                callback(self._assigned.owned)
            if commit and self._assigned.has_uncommitted:
                self.commit()
            if self._programs is not None:
                self._run(self._programs.leave())
        except ClientError:
            pass  # the session time-out does the rest
        finally:
            self._fetcher.close()
            if self._programs is not None:
                self._programs.close()

    def _reset_positions(self, programs: MemberPrograms) -> None:
        """Reset positions outside the log. A failure leaves the rest to the next poll."""
        for fetched in [fetched for fetched in self._unreturned if fetched.error_code]:
            # The failed partition is not fetched any more: begin there again, whatever happens below.
            self._fetcher.positions.seek({fetched.partition: fetched.position})
            self._unreturned = [other for other in self._unreturned if other is not fetched]
            if self._assigned.is_out_of_range(fetched):
                self.seek(self._run(programs.reset_positions(fetched.partition)))

    def _keep_up(self) -> MemberPrograms:
        """Drive the membership until no request is due."""
        if self._programs is None:
            self._programs = self._run(self._choose())
        programs = self._programs
        while True:
            revocable = programs.revocable
            if revocable is not None:
                self._revoke(programs, revocable)
            self._assign(programs)
            if programs.pause_ms(self._now_ms()) > 0:
                return programs
            self._run(programs.advance())

    def _revoke(self, programs: MemberPrograms, partitions: tuple[TopicPartition, ...]) -> None:
        is_lost = programs.is_lost
        callback = self._on_lost if is_lost else self._on_revoked
        if callback is not None and partitions:
            callback(partitions)
        if self._assigned.has_uncommitted and not is_lost:
            with contextlib.suppress(ClientError):
                self.commit()
        self._to_assign = without(self._to_assign, partitions)
        self._unreturned = [fetched for fetched in self._unreturned if fetched.partition not in partitions]
        self._fetcher.positions.drop(partitions)
        programs.release(partitions)
        if self._on_assigned is not None and partitions and not self._assigned.owned:
            self._on_assigned({})

    def _assign(self, programs: MemberPrograms) -> None:
        partitions = programs.startable
        if partitions is not None:
            positions = programs.take(self._run(programs.start_positions(partitions)))
            if positions is not None:
                self._to_assign = {**(self._to_assign or {}), **positions}
        if self._to_assign is not None:
            self._fetcher.add(self._to_assign)
            positions, self._to_assign = self._to_assign, None
            if self._on_assigned is not None:
                self._on_assigned(positions)


def require_topics(client: Client, topics: Sequence[str]) -> None:
    """Raise UnknownTopic unless every topic exists: a group would wait for a missing one for ever."""
    for topic in topics:
        if not client.topic(topic).exists:
            raise UnknownTopic(f"topic {topic!r}")
