"""A producer over asyncio: ``send`` buffers records, ``flush`` awaits their acknowledgement; each is in the log once.

Rules: as in ``blocking.producer``. Requests are sent only while ``flush``, ``poll`` or a ``send`` with a full buffer
runs. After a cancelled ``flush`` the next one continues.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import MIB
from oncelog.client.aio.client import AsyncClient, loop_ms
from oncelog.client.machine.producer import ProducerSettings
from oncelog.client.machine.record_values import checked_record
from oncelog.client.programs.delivery import Delivery
from oncelog.records.record import Headers, Record


class AsyncProducer(Delivery):
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
        super().__init__(
            client.cluster,
            settings or ProducerSettings(),
            create_topics=create_topics,
            transactional_id=transactional_id,
        )
        self._run = client.run
        self._wall_ms = client.now_ms
        self._buffer_bytes = buffer_bytes

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
        """Buffer one record. Raises as ``blocking.Producer.send``."""
        self._require_sendable()
        at = self._wall_ms() if timestamp_ms is None else timestamp_ms
        record = checked_record(topic, partition, value, key, headers, at)
        self.machine.add(await self._partition(topic, partition, record), record, loop_ms())
        while self.machine.buffered_bytes >= self._buffer_bytes:
            await self._step(waits=True)
        self._raise_failure()

    async def send_batch(self, partition: TopicPartition, batch: bytearray) -> int:
        """Buffer a prepared batch (format 2, base offset 0, no holes in its offsets), which the producer owns from now
        on. Returns the ``number`` of its ``Delivered``. Raises as ``send``."""
        self._require_sendable()
        number = self.machine.add_batch(partition, batch, loop_ms())
        while self.machine.buffered_bytes >= self._buffer_bytes:
            await self._step(waits=True)
        self._raise_failure()
        return number

    async def poll(self) -> None:
        """Send what may be sent and process the responses that have arrived, without waiting."""
        self._collect()
        await self._step(waits=False)
        self._raise_failure()

    async def flush(self) -> None:
        """Wait until every record is acknowledged. Raises DeliveryFailed for the first that is not."""
        await self._run(self._flushing())

    async def close(self) -> None:
        """Abandon the requests in flight; unflushed records are dropped."""
        self._abandon()

    async def _partition(self, topic: str, partition: int | None, record: Record) -> TopicPartition:
        if partition is not None:
            return TopicPartition(TopicName(topic), partition)
        info = self._cluster.known_topic(topic)
        if info is None:
            info = await self._run(self._cluster.topic(topic, create=self._create_topics))
        return self._place(topic, record, len(info.partitions))

    async def _step(self, *, waits: bool) -> None:
        await self._run(self._stepping(flush=True, waits=waits))
