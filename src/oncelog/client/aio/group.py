"""A group consumer over asyncio: ``poll`` returns records, and a background task maintains the membership.

Rules:
1. The task joins and sends heartbeats; another looks up positions, so that heartbeats continue.
2. Only ``poll`` revokes and assigns partitions and runs the callbacks: between two calls the assignment does not
   change. Others get partitions after they were revoked here.
3. A caller that does not ``poll`` for ``rebalance_timeout_ms`` counts as dead: heartbeats stop, others get its work.
4. Delivery is at least once; ``machine.assigned_partitions`` decides what is committed, and under which generation.
5. A cancelled ``poll`` loses nothing, and does not disturb a join in progress.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from oncelog.base.ids import TopicPartition
from oncelog.client.aio.client import AsyncClient, loop_ms
from oncelog.client.aio.consumer import AsyncConsumer
from oncelog.client.aio.membership import GroupMembership
from oncelog.client.errors import ClientError, Closed
from oncelog.client.machine.assigned_partitions import AssignedPartitions, Reset, without
from oncelog.client.machine.group import GroupSettings
from oncelog.client.machine.offsets import GroupMetadata
from oncelog.client.machine.positions import Fetched, FetchSettings
from oncelog.client.programs.group_protocol import GroupProtocol, Subscription

OnAssigned = Callable[[dict[TopicPartition, int]], Awaitable[None]]
OnRevoked = Callable[[tuple[TopicPartition, ...]], Awaitable[None]]


class AsyncGroupConsumer:
    """One member of a group; created inside a running loop, used as an asynchronous context manager and by one task.

    Arguments are those of ``blocking.GroupConsumer``, but callbacks are awaited, and ``on_assigned`` is called with the
    start positions of further partitions only.
    """

    def __init__(
        self,
        client: AsyncClient,
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
        self._consumer = AsyncConsumer(client, fetch)
        self._assigned = AssignedPartitions(group, settings.instance_id, reset, loop_ms())
        self._membership = GroupMembership(client, subscription, self._assigned, read_committed=fetch.read_committed)
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_lost = on_revoked if on_lost is None else on_lost
        self._to_assign: dict[TopicPartition, int] | None = None
        """The start of a new assignment until it is assigned: a poll may be cancelled or fail before."""
        self._unannounced: dict[TopicPartition, int] | None = None
        self._unreturned: list[Fetched] = []
        """Fetched, and not returned yet: their positions have moved already."""
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(commit=kind is None or issubclass(kind, (KeyboardInterrupt, asyncio.CancelledError)))

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The assigned partitions; they change only in ``poll``."""
        return self._assigned.owned

    @property
    def group_metadata(self) -> GroupMetadata:
        """The identity under which a transactional producer commits offsets of the assigned partitions (KIP-447)."""
        return self._assigned.metadata

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset to fetch."""
        return self._consumer.positions.of(partition)

    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """Continue at other offsets, as after an aborted transaction. Unassigned partitions are ignored."""
        self._unreturned = [fetched for fetched in self._unreturned if fetched.partition not in positions]
        self._consumer.seek({p: offset for p, offset in positions.items() if p in self._assigned.owned})

    async def poll(self, wait_ms: int = 500) -> list[Fetched]:
        """Batches that have been fetched, waiting for the first; possibly none after ``wait_ms``.

        Raises ClientError if the group or its partitions cannot be reached for ``retry_timeout_ms``, and what the
        callbacks raise: call it again after that. After ``close`` it raises Closed.
        """
        if self._is_closed:
            raise Closed(f"the consumer of group {self._assigned.metadata.group!r}")
        deadline = loop_ms() + wait_ms
        if self._assigned.is_commit_due(loop_ms()):
            await self.commit()
        while True:
            await self._follow()
            left = max(0, deadline - loop_ms())
            news = self._membership.news
            if self._assigned.is_assigned and len(self._consumer.positions):
                if not self._unreturned:
                    self._unreturned = await self._consumer.poll(left, news)
                await self._reset_positions()
                results, self._unreturned = [fetched for fetched in self._unreturned if fetched.records], []
                if results:
                    return results
            else:
                await asyncio.wait([news], timeout=left / 1000)
            if not news.done() and loop_ms() >= deadline:
                return []

    def processed(self, partition: TopicPartition, next_offset: int) -> None:
        """Mark records before ``next_offset`` as processed; ``poll`` commits them every 5 s, ``close`` the rest."""
        self._assigned.processed(partition, next_offset)

    async def commit(self) -> None:
        """Commit the processed offsets. The member rejoins if the coordinator demands it."""
        await self._membership.commit()

    async def close(self, *, commit: bool = True) -> None:
        """Revoke the partitions, committing if ``commit``; leave the group (a static member stays); close
        connections.
        """
        self._is_closed = True
        try:
            if commit and self._assigned.is_assigned:
                await self._revoke(self._assigned.owned)
            await self._membership.leave()
        except (ClientError, TimeoutError):
            pass  # the session time-out does the rest
        finally:
            self._assigned.revoke()
            await self._membership.close()
            await self._consumer.close()

    async def _follow(self) -> None:
        """Apply the membership's state: revoke partitions, and start on others."""
        if not self._membership.is_lost:
            self._membership.attend()  # raises a failure, which must not keep lost partitions here
        revocable = self._membership.revocable
        if revocable is not None:
            await self._revoke(revocable)
            self._membership.attend()
        positions = self._membership.take_start()
        if positions is not None:
            self._to_assign = {**(self._to_assign or {}), **positions}
        if self._to_assign is not None:
            await self._consumer.add(self._to_assign)
            self._unannounced = {**(self._unannounced or {}), **self._to_assign}
            self._to_assign = None
        if self._unannounced is not None:
            if self._on_assigned is not None:
                await self._on_assigned(self._unannounced)
            self._unannounced = None

    async def _revoke(self, partitions: tuple[TopicPartition, ...]) -> None:
        is_lost = self._membership.is_lost
        callback = self._on_lost if is_lost else self._on_revoked
        if callback is not None and partitions:
            await callback(partitions)
        if self._assigned.has_uncommitted and not is_lost:
            with contextlib.suppress(ClientError):
                await self.commit()
        self._to_assign = without(self._to_assign, partitions)
        self._unannounced = without(self._unannounced, partitions)
        self._unreturned = [fetched for fetched in self._unreturned if fetched.partition not in partitions]
        self._consumer.drop(partitions)
        self._membership.released(partitions)

    async def _reset_positions(self) -> None:
        """Reset positions outside the log. A failure, or a cancelled poll, leaves the rest to the next poll."""
        for fetched in [fetched for fetched in self._unreturned if fetched.error_code]:
            # The failed partition is not fetched any more: begin there again, whatever happens below.
            self._consumer.seek({fetched.partition: fetched.position})
            self._unreturned = [other for other in self._unreturned if other is not fetched]
            if self._assigned.is_out_of_range(fetched):
                self.seek(await self._membership.reset_positions(fetched.partition))
