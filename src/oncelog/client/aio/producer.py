"""A producer over asyncio: ``send`` takes records, ``flush`` waits until all are acknowledged; each is in the log once.

Rules: as of ``blocking.producer``. A request to a leader is a task of its own while ``flush`` (or a ``send`` that finds
the buffer full) waits; nothing is sent at other times. After a cancelled ``flush`` the next one goes on.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import MIB
from oncelog.client.aio.client import AsyncClient, loop_ms
from oncelog.client.errors import BrokerRefused, ClientError, UnsupportedRequest
from oncelog.client.machine.batch_delivery import MAX_REQUESTS_IN_FLIGHT, BatchDelivery, idempotent_id_request
from oncelog.client.machine.producer import PendingBatch, ProducerSettings
from oncelog.client.machine.record_values import checked_record
from oncelog.records.record import Headers, Record


class AsyncProducer(BatchDelivery):
    """An idempotent producer; an asynchronous context manager that flushes at its end (not after an exception)."""

    def __init__(
        self,
        client: AsyncClient,
        settings: ProducerSettings | None = None,
        *,
        create_topics: bool = False,
        buffer_bytes: int = 32 * MIB,
        transactional_id: str | None = None,
    ) -> None:
        super().__init__(client.view, settings or ProducerSettings(), transactional_id)
        self._client = client
        self._idempotent = self.machine.settings.acks == -1
        self._create_topics = create_topics
        self._buffer_bytes = buffer_bytes
        self._sent: dict[asyncio.Task[None], int] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            await self.close()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Buffer one record. Raises DeliveryFailed for earlier ones, UnknownTopic and what a request does; TypeError
        and ValueError for what no record can hold."""
        at = self._client.now_ms() if timestamp_ms is None else timestamp_ms
        record = checked_record(topic, partition, value, key, headers, at)
        self.machine.add(await self._partition(topic, partition, record), record, loop_ms())
        while self.machine.buffered_bytes >= self._buffer_bytes:
            await self._step()
        self._raise_failure()

    async def send_batch(self, partition: TopicPartition, batch: bytearray) -> int:
        """Buffer a ready batch (format 2, base offset 0, without holes in its offsets), which is the producer's from
        now on; the ``number`` of its ``Delivered``. Raises DeliveryFailed for earlier ones, and what a request does."""
        number = self.machine.add_batch(partition, batch, loop_ms())
        while self.machine.buffered_bytes >= self._buffer_bytes:
            await self._step()
        self._raise_failure()
        return number

    async def poll(self) -> None:
        """Send what may be sent, and take the answers that are here, without waiting for others."""
        self._take_finished()
        await self._keep_identity()
        await self._send_ready()
        self._raise_failure()

    async def flush(self) -> None:
        """Wait until every record is acknowledged. Raises DeliveryFailed for the first that is not."""
        while not self.machine.is_empty:
            await self._step()
            self._raise_failure()
        self._raise_failure()

    async def close(self) -> None:
        """Cancel the requests in flight; what is not flushed is dropped."""
        tasks = list(self._sent)
        self._sent.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _partition(self, topic: str, partition: int | None, record: Record) -> TopicPartition:
        if partition is not None:
            return TopicPartition(TopicName(topic), partition)
        count = len((await self._client.topic(topic, create=self._create_topics)).partitions)
        return self._place(topic, record, count)

    async def _step(self) -> None:
        """Send what is ready, and wait until something is answered."""
        await self._keep_identity()
        await self._send_ready()
        if self._sent:
            await asyncio.wait(self._sent, timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
            self._take_finished()
        else:
            until_due = self.machine.next_due_ms() - loop_ms()
            await asyncio.sleep(max(1, min(until_due if until_due > 0 else 10, 100)) / 1000)

    def _take_finished(self) -> None:
        for task in [task for task in self._sent if task.done()]:
            del self._sent[task]
            task.result()

    async def _keep_identity(self) -> None:
        """Obtain a producer id before anything is sent, and the next epoch when sequences were lost."""
        for failed in self.machine.renumber():
            self._note(failed)
        if not self._idempotent or not self.machine.needs_identity or self._sent:
            return

        async def attempt() -> tuple[int, int]:
            response = await self._client.request(idempotent_id_request())
            if response.error_code:
                raise BrokerRefused(response.error_code, "a producer id")
            return response.producer_id, response.producer_epoch

        try:
            self.machine.identify(*await self._client.retrying(attempt))
        except UnsupportedRequest:
            self._idempotent = False

    async def _admit(self, partitions: list[TopicPartition]) -> None:
        """Hook called before batches for ``partitions`` are sent the first time."""

    async def _send_ready(self) -> None:
        """Group what is ready by leader and send it, as many requests as may be in flight."""
        for _ in range(MAX_REQUESTS_IN_FLIGHT):
            ready = list(self.machine.ready(loop_ms(), flush=True))
            await self._admit(ready)
            by_leader: dict[int, list[TopicPartition]] = {}
            for partition in ready:
                try:
                    leader = await self._client.retrying(lambda partition=partition: self._leader(partition))  # type: ignore[misc]  # bound now
                except BrokerRefused as error:
                    self._undeliverable(partition, error)
                    continue
                if list(self._sent.values()).count(leader) < MAX_REQUESTS_IN_FLIGHT:
                    by_leader.setdefault(leader, []).append(partition)
            if not by_leader:
                return
            for leader, partitions in by_leader.items():
                await self._open(leader)
                limit = self.machine.settings.max_batches_a_request
                batches = [self.machine.drain(partition) for partition in partitions[:limit]]
                self._sent[asyncio.create_task(self._produce(leader, batches))] = leader
            await asyncio.sleep(0)  # tasks write in the order they were made, so batches leave in theirs

    async def _leader(self, partition: TopicPartition) -> int:
        return await self._client.leader(partition, create=self._create_topics)

    async def _open(self, leader: int) -> None:
        """Connect to ``leader`` first, so that requests are written in order without waiting for a connection."""
        try:
            await self._client.link(leader)
        except ClientError as error:
            if not self._client.may_pass(error):
                raise

    async def _produce(self, leader: int, batches: list[PendingBatch]) -> None:
        settings, config = self.machine.settings, self._client.config
        message = self._request(batches, config.request_timeout_ms)
        try:
            link = await self._client.link(leader)
            version = link.versions.choose(message, self._version_limit(batch.partition for batch in batches))
            response = await link.call(message, version, config.request_timeout_ms * 2, answered=settings.acks != 0)
        except BaseException as error:
            self._lost(batches, loop_ms())
            if not isinstance(error, ClientError) or not self._client.may_pass(error):
                raise
            return
        if settings.acks == 0:
            self._sent_unanswered(batches)
        else:
            self._take(batches, response, loop_ms())
