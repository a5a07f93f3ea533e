"""A consumer of a share group over asyncio (KIP-932): a queue of records, each acknowledged by itself.

1. A background task joins and sends heartbeats, until the caller has not been in ``poll`` for ``max_poll_interval_ms``.
2. Other tasks may acknowledge records and commit while one polls.
3. A cancelled ``poll`` loses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self

from oncelog.client.aio.client import AsyncClient, loop_ms
from oncelog.client.aio.driver import failure_of
from oncelog.client.machine.share.values import Acknowledged, AcquiredBatches, ShareRecord, ShareSettings
from oncelog.client.programs.share_records import ShareRecords

OnAcknowledged = Callable[[list[Acknowledged]], Awaitable[None]]
_IDLE_POLL_MS = 500
_LONGEST_HEARTBEAT_PAUSE_MS = 1000
"""The coordinator learns of a changed subscription within this time."""


class AsyncShareConsumer(ShareRecords):
    """One member of a share group; created inside a running loop, used as an asynchronous context manager.

    Modes and arguments are those of ``blocking.ShareConsumer``, but the callback is awaited.
    """

    def __init__(
        self,
        client: AsyncClient,
        group: str,
        topics: Sequence[str],
        *,
        settings: ShareSettings | None = None,
        on_acknowledged: OnAcknowledged | None = None,
    ) -> None:
        super().__init__(client.cluster, group, topics, settings)
        self._run = client.run
        self._commit_timeout_ms = client.config.retry_timeout_ms
        self._on_acknowledged = on_acknowledged
        self._heartbeats: asyncio.Task[None] | None = None
        self._polled_ms = loop_ms()
        self._polls = 0
        """The polls that are in work."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[ShareRecord]:
        return self.records()

    async def records(self, idle_ms: int | None = None) -> AsyncIterator[ShareRecord]:
        """Records as they arrive; ends after ``idle_ms`` without any from its partitions, by default never. In implicit
        mode each is accepted when the next is asked for.

        Raises what ``poll`` raises.
        """
        while True:
            is_assigned = bool(self.assignment)
            self._unread.extend(await self.poll(_IDLE_POLL_MS if idle_ms is None else idle_ms))
            if not self._unread and is_assigned and idle_ms is not None:
                return
            while self._unread:
                record = self._unread.popleft()
                yield record
                self._accept_read(record)

    async def poll(self, wait_ms: int = 500) -> list[ShareRecord]:
        """Records that have been acquired, waiting for the first; possibly none after ``wait_ms``.

        Raises ClientError if the group or the leaders cannot be reached for ``retry_timeout_ms``; UnreadableRecords for
        a damaged batch, which is rejected; Closed. Call it again after an error.
        """
        if self._unread:
            return self._take_unread()
        return self._read(await self.poll_batches(wait_ms))

    async def poll_batches(self, wait_ms: int = 500) -> list[AcquiredBatches]:
        """Like ``poll``, without an object for each record: batches as received, and the offsets acquired in them."""
        self._begin_poll()
        self._attend()
        if self._on_acknowledged is not None:
            await self._tell(self._take_results())
        self._polls += 1
        try:
            return await self._run(self._programs.poll(wait_ms, heartbeats=False))
        finally:
            self._polls -= 1
            self._polled_ms = loop_ms()

    async def commit(self, timeout_ms: int | None = None) -> list[Acknowledged]:
        """Send all acknowledgements, in implicit mode of all records read, and wait for the results.

        Returns the results since the last commit (with ``on_acknowledged``: since its last call), at most the newest
        10,000 ranges. Raises RequestTimedOut after ``timeout_ms`` (default: ``retry_timeout_ms``): commit again then.
        """
        self._begin_commit()
        await self._run(self._programs.commit(self._commit_timeout_ms if timeout_ms is None else timeout_ms))
        results = self._take_results()
        await self._tell(results)
        return results

    async def close(self) -> None:
        """Send all acknowledgements, release the other records, leave the group, and close the connections."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._heartbeats is not None:
                self._heartbeats.cancel()
                await asyncio.gather(self._heartbeats, return_exceptions=True)
            await self._run(self._programs.close())
        finally:
            self._programs.abort()
            self._programs.member.close()
        await self._tell(self._take_results())

    def _attend(self) -> None:
        """Record a poll, and keep the background task running. Raises the task's failure."""
        self._polled_ms = loop_ms()
        if self._heartbeats is not None and self._heartbeats.done():
            ended, self._heartbeats = self._heartbeats, None
            if (error := failure_of(ended)) is not None:
                raise error
        if self._heartbeats is None:
            self._heartbeats = asyncio.create_task(self._stay())

    async def _stay(self) -> None:
        """Maintain the membership as long as the caller polls."""
        member = self._programs.member
        while self._is_present():
            await self._run(member.advance())
            pause_ms = member.pause_ms(loop_ms())
            await asyncio.sleep(min(pause_ms, _LONGEST_HEARTBEAT_PAUSE_MS) / 1000)
            if not self._is_present():
                await self._run(member.give_up())

    def _is_present(self) -> bool:
        return bool(self._polls) or loop_ms() - self._polled_ms < self._settings.max_poll_interval_ms

    async def _tell(self, results: list[Acknowledged]) -> None:
        if results and self._on_acknowledged is not None:
            await self._on_acknowledged(results)
