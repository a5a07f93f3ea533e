"""Fetches over asyncio: assign partitions with positions (``Positions`` has the rules), then ``poll`` for batches.

Fetches use a separate connection to each leader, because a broker answers nothing else on it while a fetch waits. They
continue in the background. A cancelled ``poll`` loses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from oncelog.base.errors import PeerError
from oncelog.base.ids import TopicPartition
from oncelog.client.aio.client import AsyncClient, finished, loop_ms
from oncelog.client.aio.link import AsyncLink
from oncelog.client.errors import ClientError, ConnectionLost
from oncelog.client.machine.positions import Fetched, FetchSettings, Positions
from oncelog.client.programs.doubt import DOUBT_AGAIN_MS, DOUBT_MS, Doubt, Silent
from oncelog.client.programs.log_offsets import offsets_at


class AsyncConsumer:
    def __init__(self, client: AsyncClient, settings: FetchSettings | None = None) -> None:
        self._client = client
        self.positions = Positions(client.view, settings or FetchSettings())
        self._links: dict[int, AsyncLink] = {}
        self._sent: dict[asyncio.Task[ClientError | None], int] = {}
        self._asked: dict[int, tuple[int, Silent]] = {}
        """Leaders that have a fetch, each with the time from which it is doubted."""
        self._doubt = Doubt(client.cluster)
        self._arrived: list[Fetched] = []
        self._failing_since_ms: int | None = None
        self._attempt = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def assign(
        self, positions: Mapping[TopicPartition, int], until: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Fetch exactly these partitions; responses in flight for others are dropped. Raises UnknownTopic."""
        await self._look_up(positions)
        self.positions.assign(positions, until)
        self._arrived.clear()

    async def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """Fetch these partitions too. Raises UnknownTopic."""
        await self._look_up(positions)
        self.seek(positions)

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """For each partition, the first offset at or after a timestamp in milliseconds (−1: latest, −2: earliest); −1
        if there is none."""
        return await offsets_at(self._client, timestamps, read_committed=read_committed)

    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """Continue ``positions`` at other offsets; batches already fetched for them are dropped."""
        self.positions.seek(positions)
        self._arrived = [fetched for fetched in self._arrived if fetched.partition not in positions]

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching ``partitions``; batches already fetched for them are dropped."""
        self.positions.drop(partitions)
        self._arrived = [fetched for fetched in self._arrived if fetched.partition not in partitions]

    async def poll(self, wait_ms: int = 1000, until: asyncio.Future[None] | None = None) -> list[Fetched]:
        """Batches that have arrived, waiting for the first; empty after ``wait_ms``, if nothing is assigned, or once
        ``until`` is done.

        Raises ClientError if brokers cannot be reached for ``retry_timeout_ms``.
        """
        deadline = loop_ms() + wait_ms
        interrupt = () if until is None else (until,)
        while len(self.positions) and not self._arrived and not (until is not None and until.done()):
            await self._send_all()
            left = max(0, deadline - loop_ms())
            # All partitions are postponed after errors, or without a leader.
            if not self._sent:
                if not left:
                    break
                due = self.positions.next_due_ms()
                pause = left if due is None else min(left, due - loop_ms())
                await asyncio.sleep(max(pause, 1) / 1000)
                continue
            waiting: list[asyncio.Future[Any]] = [*self._sent, *interrupt]
            pause = min(left, DOUBT_AGAIN_MS // (5 if self._doubt.pending else 1))
            done, _ = await asyncio.wait(waiting, timeout=pause / 1000, return_when=asyncio.FIRST_COMPLETED)
            await self._leave_replaced_leaders()
            ended = finished(self._sent, done)
            failures = [task.result() for task in ended]
            for task in ended:
                del self._sent[task]
            for failure in failures:
                await self._handle_result(failure)
            if not left:
                break
        results, self._arrived = self._arrived, []
        return results

    async def close(self) -> None:
        tasks, links = list(self._sent), list(self._links.values())
        self._sent.clear()
        self._links.clear()
        self._doubt.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for link in links:
            await link.close()

    async def _look_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Look up the leaders. Raises UnknownTopic."""
        for partition in partitions:
            await self._client.retrying(lambda partition=partition: self._client.leader(partition))  # type: ignore[misc]  # bound now

    async def _send_all(self) -> None:
        now = loop_ms()
        topics = dict.fromkeys(partition.topic for group in self.positions.leaders(now).values() for partition in group)
        stale = [topic for topic in topics if self._client.view.age_ms(topic, now) is None]
        missing = [*self.positions.without_leader(now), *stale]
        if missing:
            try:
                await self._client.metadata(missing)
            except ClientError as error:
                await self._failed(error)
        for broker in self.positions.leaders(loop_ms()):
            if broker not in self._sent.values():
                self._sent[asyncio.create_task(self._fetch(broker))] = broker

    async def _fetch(self, broker: int) -> ClientError | None:
        """Send a fetch and buffer its response on arrival, so that a later ``assign`` or ``seek`` can drop it."""
        positions: Mapping[TopicPartition, int] = {}
        try:
            link = self._links.get(broker)
            if link is None or not link.is_open:
                link = self._links[broker] = await self._client.connect(broker)
            partitions = self.positions.leaders(loop_ms()).get(broker)  # connecting took time, and they may have gone
            if not partitions:
                return None
            message, positions, at_most = self.positions.request(partitions)
            timeout_ms = self._client.config.request_timeout_ms + message.max_wait_ms
            version = link.versions.choose(message, at_most, old=self.positions.settings.old_formats)
            doubtful_ms = loop_ms() + message.max_wait_ms + DOUBT_MS
            self._asked[broker] = doubtful_ms, Silent(link, list(positions))
            response = await link.call(message, version, timeout_ms)
            self._arrived += self.positions.answered(positions, response, loop_ms())
        except PeerError as error:
            await self._links.pop(broker).close()
            self.positions.lost(positions)
            return ConnectionLost(f"broker {broker} does not speak the Kafka protocol: {error}")
        except ClientError as error:
            self.positions.lost(positions)
            for partition in self.positions.leaders(loop_ms()).get(broker, ()):
                self._client.view.forget(partition.topic)
            return error
        finally:
            self._asked.pop(broker, None)
        return None

    async def _leave_replaced_leaders(self) -> None:
        """Close the links to leaders that have not answered for long, if others lead by now."""
        now = loop_ms()
        silent = {broker: leader for broker, (doubtful_ms, leader) in self._asked.items() if now >= doubtful_ms}
        await self._client.run(self._doubt.pursue(silent))

    async def _handle_result(self, failure: ClientError | None) -> None:
        if failure is not None:
            await self._failed(failure)
        else:
            self._failing_since_ms, self._attempt = None, 0

    async def _failed(self, error: ClientError) -> None:
        """Pause after a failed fetch. Raises ``error`` if it is final, or fetches have failed for too long."""
        since = self._failing_since_ms = loop_ms() if self._failing_since_ms is None else self._failing_since_ms
        if not self._client.may_pass(error) or loop_ms() - since >= self._client.config.retry_timeout_ms:
            raise error
        await self._client.pause(self._attempt)
        self._attempt += 1
