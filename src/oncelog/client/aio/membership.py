"""Maintains the membership of an asynchronous group consumer, in a task: join, sync, heartbeats, start positions.

Rules: the states are those of ``machine.group``, with one outstanding request to the coordinator. While partitions are
assigned and the group rebalances, the task only sends heartbeats; it rejoins once ``poll`` has revoked them. Positions
are looked up in a second task, because a transaction with pending offsets may delay them beyond the session. Only
``poll`` changes the assignment itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from oncelog.base.ids import TopicPartition
from oncelog.client.aio.client import AsyncClient, loop_ms
from oncelog.client.aio.driver import failure_of
from oncelog.client.machine.assigned_partitions import TOPIC_CHECK_MS, AssignedPartitions
from oncelog.client.machine.group import GroupMember, State
from oncelog.client.programs.group import MemberPrograms

_LEAVE_TIMEOUT_S: Final = 5.0


class GroupMembership:
    """The membership task and its exchange with ``poll``.

    ``news`` is done when ``poll`` has something to do: the assignment is over, positions of a new one are known, or the
    task has failed. ``poll`` responds with ``take_start`` and ``released``.
    """

    def __init__(
        self, client: AsyncClient, member: GroupMember, assigned: AssignedPartitions, *, read_committed: bool
    ) -> None:
        self._run = client.run
        self._member = member
        self._assigned = assigned
        self._programs = MemberPrograms(client.cluster, member, assigned, read_committed)
        self._task: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[dict[TopicPartition, int]] | None = None
        self._abandoned: dict[asyncio.Task[Any], None] = {}
        self._wake = asyncio.Event()
        self._attended_ms = loop_ms()
        self.news: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_over(self) -> bool:
        """True if the assigned partitions no longer belong to the member: it rebalances or has another generation."""
        # Rule: the generation of ``assign`` counts, never a newer one.
        held = self._assigned.metadata
        member = self._member
        return member.state is not State.STABLE or (held.generation, held.member_id) != (
            member.generation,
            member.member_id,
        )

    def attend(self) -> None:
        """Record a call of ``poll`` and keep the task running. Raises the task's failure."""
        self._attended_ms = loop_ms()
        if self.news.done():
            self.news = asyncio.get_running_loop().create_future()
        if self._starting is not None and self._starting.done() and failure_of(self._starting) is not None:
            failed, self._starting = self._starting, None
            failed.result()
        if self._task is not None and self._task.done():
            ended, self._task = self._task, None
            if (error := failure_of(ended)) is not None:
                raise error
        if self._task is None:
            self._task = asyncio.create_task(self._live())
            self._task.add_done_callback(self._notify)
        if self._starting is None and not self._assigned.is_assigned and self._member.state is State.STABLE:
            self._start()

    def take_start(self) -> dict[TopicPartition, int] | None:
        """The positions of a new assignment, returned once; the partitions count as assigned from then on."""
        member, starting = self._member, self._starting
        if starting is None or not starting.done() or member.state is not State.STABLE:
            return None
        self._starting = None
        self._assigned.assign(member.assignment, member.generation, member.member_id)
        return starting.result()

    def released(self) -> None:
        """The partitions are revoked: the task may join."""
        self._assigned.revoke()
        self._wake.set()

    async def commit(self) -> bool:
        """Commit the processed offsets. Returns False if that was refused and the member rejoins."""
        is_done = await self._run(self._programs.commit())
        if not is_done:
            self._wake.set()
            self._notify()
        return is_done

    async def reset_positions(self, partition: TopicPartition) -> dict[TopicPartition, int]:
        return await self._run(self._programs.reset_positions(partition))

    async def leave(self) -> None:
        """End the task and leave the group. Raises ClientError, or TimeoutError if that takes too long."""
        await self._stop()
        async with asyncio.timeout(_LEAVE_TIMEOUT_S):
            await self._run(self._programs.leave())

    async def close(self) -> None:
        await self._stop()
        self._programs.close()

    async def _stop(self) -> None:
        tasks = [task for task in (self._task, self._starting, *self._abandoned) if task is not None]
        self._task = self._starting = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _live(self) -> None:
        """Maintain the membership as long as the caller polls."""
        while loop_ms() - self._attended_ms < self._member.settings.rebalance_timeout_ms:
            if self._member.state is State.STABLE or self._assigned.is_assigned:
                await self._keep_alive()
            else:
                await self._join()

    async def _join(self) -> None:
        """Send one join or sync, and assign the partitions if this member leads."""
        await self._run(self._programs.exchange(self._member.next_request(loop_ms())))
        if self._member.state is State.STABLE:
            self._programs.topics_due_ms = loop_ms() + TOPIC_CHECK_MS
            self._start()

    async def _keep_alive(self) -> None:
        """Send a heartbeat if due while the assignment is valid or not yet revoked, then pause."""
        member = self._member
        self._wake.clear()
        if member.state is State.STABLE:
            await self._run(self._programs.exchange(member.next_request(loop_ms())))
            await self._run(self._programs.check_topics())
        else:
            await self._run(self._programs.exchange(member.keep_alive(loop_ms())))
        if member.state is not State.STABLE:
            self._end_start()
            self._notify()
            if not self._assigned.is_assigned:
                return
        until_due = member.heartbeat_due_ms - loop_ms()
        pause_ms = until_due if until_due > 0 else member.settings.heartbeat_interval_ms
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_ms / 1000):
                await self._wake.wait()

    def _start(self) -> None:
        """Look up the start positions in a second task, so that heartbeats continue."""
        self._end_start()
        self._starting = asyncio.create_task(self._run(self._programs.start_positions(self._member.assignment)))
        self._starting.add_done_callback(self._notify)

    def _end_start(self) -> None:
        """Abandon the position look-up. It is not cancelled: that would close a connection that others wait on."""
        if self._starting is not None:
            self._abandoned[self._starting] = None
            self._starting.add_done_callback(self._forget_abandoned)
            self._starting = None

    def _forget_abandoned(self, task: asyncio.Task[Any]) -> None:
        del self._abandoned[task]
        failure_of(task)

    def _notify(self, _: object = None) -> None:
        if not self.news.done():
            self.news.set_result(None)
