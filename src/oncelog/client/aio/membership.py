"""Maintains the membership of an asynchronous group consumer, in a task, in either protocol.

Positions are looked up in a second task, because a transaction with pending offsets may delay them beyond the session.
Only ``poll`` changes the assignment itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from oncelog.base.ids import TopicPartition
from oncelog.client.aio.client import AsyncClient, loop_ms
from oncelog.client.aio.driver import failure_of
from oncelog.client.machine.assigned_partitions import AssignedPartitions
from oncelog.client.programs.group import MemberPrograms
from oncelog.client.programs.group_protocol import Subscription, choose_member

_LEAVE_TIMEOUT_S: Final = 5.0


class GroupMembership:
    """The membership task; see also ``MemberPrograms``. ``news`` is done when ``poll`` has something to do: the
    assignment is over, positions of a new one are known, or the task has failed."""

    def __init__(
        self, client: AsyncClient, subscription: Subscription, assigned: AssignedPartitions, *, read_committed: bool
    ) -> None:
        self._run = client.run
        self._patience_ms = subscription.settings.rebalance_timeout_ms
        self._choose = partial(choose_member, client.cluster, subscription, assigned, read_committed)
        self._programs: MemberPrograms | None = None
        self._task: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[dict[TopicPartition, int]] | None = None
        self._abandoned: dict[asyncio.Task[Any], None] = {}
        self._wake = asyncio.Event()
        self._attended_ms = loop_ms()
        self.news: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def revocable(self) -> tuple[TopicPartition, ...] | None:
        return None if self._programs is None else self._programs.revocable

    @property
    def is_lost(self) -> bool:
        return self._programs is not None and self._programs.is_lost

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
        if self._starting is None:
            self._start()

    def take_start(self) -> dict[TopicPartition, int] | None:
        """The positions of started partitions, returned once; these count as assigned from then on."""
        programs, starting = self._programs, self._starting
        if programs is None or starting is None or not starting.done() or programs.startable is None:
            return None
        self._starting = None
        positions = programs.take(starting.result())
        if not programs.pause_ms(loop_ms()):
            self._wake.set()
        return positions

    def released(self, partitions: Iterable[TopicPartition]) -> None:
        if self._programs is not None:
            self._programs.release(partitions)
        self._wake.set()

    async def commit(self) -> bool:
        if self._programs is None:
            return True
        is_done = await self._run(self._programs.commit())
        if not is_done:
            self._wake.set()
            self._notify()
        return is_done

    async def reset_positions(self, partition: TopicPartition) -> dict[TopicPartition, int]:
        if self._programs is None:
            return {}
        return await self._run(self._programs.reset_positions(partition))

    async def leave(self) -> None:
        """End the task and leave the group. Raises ClientError, or TimeoutError if that takes too long."""
        await self._stop()
        if self._programs is not None:
            async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                await self._run(self._programs.leave())

    async def close(self) -> None:
        await self._stop()
        if self._programs is not None:
            self._programs.close()

    async def _stop(self) -> None:
        tasks = [task for task in (self._task, self._starting, *self._abandoned) if task is not None]
        self._task = self._starting = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _live(self) -> None:
        """Maintain the membership as long as the caller polls."""
        if self._programs is None:
            self._programs = await self._run(self._choose())
        programs = self._programs
        while loop_ms() - self._attended_ms < self._patience_ms:
            self._wake.clear()
            await self._run(programs.advance())
            if programs.startable is None:
                self._end_start()
            elif self._starting is None:
                self._start()
            elif self._starting.done():
                self._notify()  # it could not be taken during the request
            if programs.revocable is not None:
                self._notify()
            pause_ms = programs.pause_ms(loop_ms())
            if pause_ms > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_ms / 1000):
                        await self._wake.wait()
        await self._run(programs.give_up())

    def _start(self) -> None:
        partitions = None if self._programs is None else self._programs.startable
        if self._programs is None or partitions is None:
            return
        self._starting = asyncio.create_task(self._run(self._programs.start_positions(partitions)))
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
