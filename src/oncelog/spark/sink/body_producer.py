"""Producers of batches that are already encoded: the client's producers, with ``send_body`` beside ``send``.

At most ``BUFFER_BYTES`` wait. Deliveries are recorded by partition, with offsets if the broker returns them.
"""

from __future__ import annotations

from typing import Final, Protocol

from oncelog.base.ids import TopicPartition
from oncelog.base.units import MIB
from oncelog.client.blocking import Client
from oncelog.client.blocking.link import now_ms
from oncelog.client.blocking.producer import Producer
from oncelog.client.blocking.transactions import TransactionalProducer
from oncelog.client.machine.pending_batch import BatchOutcome, Delivered, PendingBatch
from oncelog.client.machine.producer import ProducerMachine, ProducerSettings, _Partition
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.records.columns.encode import Body, sealed_header
from oncelog.records.record import Record
from oncelog.spark.sink.two_phase.register import Written

BUFFER_BYTES: Final = 32 * MIB


class _Encoded(list[Record]):
    def __init__(self, body: Body) -> None:
        super().__init__()
        self.body = body

    def __len__(self) -> int:
        return self.body.records


class BodyMachine(ProducerMachine):
    def add_body(self, partition: TopicPartition, body: Body, now: int) -> None:
        self._batches += 1
        size = len(body.data)
        batch = PendingBatch(
            partition,
            self._batches,
            now,
            records=_Encoded(body),
            size_bytes=size,
            body=body.data,
            count=body.records,
        )
        self._partitions.setdefault(partition, _Partition()).queue.append(batch)
        self.buffered_bytes += size

    def _encode(self, batch: PendingBatch, producer_id: int, producer_epoch: int) -> bytearray:
        if not isinstance(batch.records, _Encoded):
            return super()._encode(batch, producer_id, producer_epoch)
        return sealed_header(
            batch.records.body,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=batch.sequence,
            transactional=self._transactional,
        )


class Deliveries:
    def __init__(self) -> None:
        self._written: dict[TopicPartition, Written] = {}

    def add(self, outcome: BatchOutcome | None) -> None:
        if not isinstance(outcome, Delivered):
            return
        topic, partition = outcome.partition
        last = outcome.base_offset + outcome.records - 1 if outcome.base_offset >= 0 else -1
        before = self._written.get(outcome.partition)
        if before is None:
            self._written[outcome.partition] = Written(topic, partition, outcome.records, outcome.base_offset, last)
        else:
            first = before.first_offset if before.first_offset >= 0 else outcome.base_offset
            rows = before.rows + outcome.records
            self._written[outcome.partition] = Written(topic, partition, rows, first, max(before.last_offset, last))

    def all(self) -> tuple[Written, ...]:
        return tuple(self._written[partition] for partition in sorted(self._written))


class BodyProducer(Protocol):
    deliveries: Deliveries

    def send_body(self, partition: TopicPartition, body: Body) -> None:
        """Queue one batch and send what can be sent; waits while the buffer is full. Raises earlier failures."""

    def flush(self) -> None:
        """Wait until everything is acknowledged."""


class _BodySender(Producer):
    """Adds ``send_body`` to a producer whose machine is a ``BodyMachine``."""

    deliveries: Deliveries

    def send_body(self, partition: TopicPartition, body: Body) -> None:
        assert isinstance(self.machine, BodyMachine)
        self._raise_failure()
        self.machine.add_body(partition, body, now_ms())
        self._step(flush=True, waits=False)
        while self.machine.buffered_bytes >= BUFFER_BYTES:
            self._step(flush=True, waits=True)
            self._raise_failure()

    def _note(self, outcome: BatchOutcome | None) -> None:
        self.deliveries.add(outcome)
        super()._note(outcome)


class IdempotentBodyProducer(_BodySender):
    """An idempotent producer of encoded batches outside transactions: at least once across restarts of the query."""

    def __init__(self, client: Client, settings: ProducerSettings) -> None:
        super().__init__(client, settings, create_topics=True)
        self.machine = BodyMachine(settings)
        self.deliveries = Deliveries()


class TransactionalBodyProducer(_BodySender, TransactionalProducer):
    def __init__(self, client: Client, transaction: TransactionSettings, settings: ProducerSettings) -> None:
        TransactionalProducer.__init__(self, client, transaction, settings, create_topics=True)
        self.machine = BodyMachine(settings, transactional=True)
        self.deliveries = Deliveries()
