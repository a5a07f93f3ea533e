"""A producer: ``send`` buffers records, ``flush`` waits for them; each is in the log once, or its failure is raised.

Several requests are in flight to every leader; ``send`` blocks only while ``buffer_bytes`` are waiting. A failed batch
is raised by the next ``send`` or by ``flush``, unless ``on_outcome`` handles it. A record that the broker refuses fails
alone (``machine.producer``). Only ``flush`` guarantees that buffered records are sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import MIB
from oncelog.client.blocking.client import Client
from oncelog.client.blocking.link import now_ms
from oncelog.client.machine.pending_batch import BatchOutcome, Delivered, Failed
from oncelog.client.machine.producer import ProducerSettings
from oncelog.client.machine.record_values import checked_record
from oncelog.client.programs.delivery import Delivery, DeliveryFailed
from oncelog.records.record import Headers, Record


class Producer(Delivery):
    """An idempotent producer; a context manager that flushes at its end (not after an exception)."""

    def __init__(
        self,
        client: Client,
        settings: ProducerSettings | None = None,
        *,
        idempotent: bool = True,
        create_topics: bool = False,
        buffer_bytes: int = 32 * MIB,
        on_outcome: Callable[[BatchOutcome], None] | None = None,
        transactional_id: str | None = None,
    ) -> None:
        super().__init__(
            client.cluster,
            settings or ProducerSettings(),
            idempotent=idempotent,
            create_topics=create_topics,
            transactional_id=transactional_id,
        )
        self.on_outcome = on_outcome
        self._run = client.run
        self._buffer_bytes = buffer_bytes
        self._counts: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Buffer one record. Raises DeliveryFailed for earlier ones, UnknownTopic and what ``request`` raises;
        TypeError and ValueError for invalid arguments; TransactionFailed for earlier failures in the transaction."""
        self._require_sendable()
        at = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        record = checked_record(topic, partition, value, key, headers, at)
        self.machine.add(self._partition(topic, partition, record), record, now_ms())
        if self.machine.buffered_bytes >= self.machine.settings.batch_bytes:
            self._step(flush=False, waits=False)
        while self.machine.buffered_bytes >= self._buffer_bytes:
            self._step(flush=True, waits=True)
        self._raise_failure()

    def poll(self) -> None:
        """Send batches that have lingered long enough; for callers that pause between records."""
        self._step(flush=False, waits=False)
        self._raise_failure()

    def flush(self) -> None:
        """Wait until every record is acknowledged. Raises DeliveryFailed for the first that is not."""
        self._run(self._flushing())

    def close(self) -> None:
        """Drop unflushed records."""
        self._abandon()

    def _partition(self, topic: str, partition: int | None, record: Record) -> TopicPartition:
        if partition is not None:
            return TopicPartition(TopicName(topic), partition)
        count = self._counts.get(topic)
        if count is None:
            info = self._run(self._cluster.topic(topic, create=self._create_topics))
            count = self._counts[topic] = len(info.partitions)
        return self._place(topic, record, count)

    def _step(self, *, flush: bool, waits: bool) -> None:
        self._run(self._stepping(flush=flush, waits=waits))

    def _note(self, outcome: BatchOutcome | None) -> None:
        if self.on_outcome is None:
            super()._note(outcome)
        elif outcome is not None:
            self.on_outcome(outcome)


__all__ = ["Delivered", "DeliveryFailed", "Failed", "Producer", "ProducerSettings"]
