"""Producers of batches that are encoded already: the client's, with ``send_body`` beside ``send``.

Rules: the order of what is added is kept in each partition; at most ``BUFFER_BYTES`` wait. Deliveries are kept
by topic and partition, with offsets if the broker tells them.
"""

from __future__ import annotations

from typing import Final, Protocol

from oncelog.base.ids import TopicPartition
from oncelog.base.units import MIB
from oncelog.client.blocking import Client
from oncelog.client.blocking.link import now_ms
from oncelog.client.blocking.producer import Producer
from oncelog.client.blocking.transactions import TransactionalProducer
from oncelog.client.machine.producer import (
    Delivered,
    Outcome,
    PendingBatch,
    ProducerMachine,
    ProducerSettings,
    _Partition,
)
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.records.columns.encode import Body, sealed_header
from oncelog.records.record import Record
from oncelog.spark.sink.two_phase.register import Written

BUFFER_BYTES: Final = 32 * MIB


class _Encoded(list[Record]):
    """Stands for the records of an encoded batch: only their number is asked for."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        self.body = body

    def __len__(self) -> int:
        return self.body.records


class BodyMachine(ProducerMachine):
    """A producer machine that takes bodies; sequences, order and repetition are as ever."""

    def add_body(self, partition: TopicPartition, body: Body, now: int) -> None:
        """Queue one batch."""
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
    """Rows and offsets written, by topic and partition."""

    def __init__(self) -> None:
        self._found: dict[TopicPartition, Written] = {}

    def note(self, outcome: Outcome | None) -> None:
        """Add one outcome, if it is a delivery."""
        if not isinstance(outcome, Delivered):
            return
        topic, partition = outcome.partition
        last = outcome.base_offset + outcome.records - 1 if outcome.base_offset >= 0 else -1
        before = self._found.get(outcome.partition)
        if before is None:
            self._found[outcome.partition] = Written(topic, partition, outcome.records, outcome.base_offset, last)
        else:
            first = before.first_offset if before.first_offset >= 0 else outcome.base_offset
            rows = before.rows + outcome.records
            self._found[outcome.partition] = Written(topic, partition, rows, first, max(before.last_offset, last))

    def all(self) -> tuple[Written, ...]:
        """All deliveries, in order of topic and partition."""
        return tuple(self._found[partition] for partition in sorted(self._found))


class BodyProducer(Protocol):
    """A producer of encoded batches: either of the two below."""

    deliveries: Deliveries

    def send_body(self, partition: TopicPartition, body: Body) -> None:
        """Take one batch; sends what can be sent. Raises what earlier ones failed with."""

    def flush(self) -> None:
        """Wait until all is acknowledged."""


class _BodySender(Producer):
    """``send_body`` over a producer whose machine is a ``BodyMachine``."""

    deliveries: Deliveries

    def send_body(self, partition: TopicPartition, body: Body) -> None:
        """Queue one batch and send what can be sent; waits while the buffer is full. Raises earlier failures."""
        assert isinstance(self.machine, BodyMachine)
        self._raise_failure()
        self.machine.add_body(partition, body, now_ms())
        self._step(flush=True, waits=False)
        while self.machine.buffered_bytes >= BUFFER_BYTES:
            self._step(flush=True, waits=True)
            self._raise_failure()

    def _note(self, outcome: Outcome | None) -> None:
        self.deliveries.note(outcome)
        super()._note(outcome)


class IdempotentBodyProducer(_BodySender):
    """An idempotent producer of encoded batches, outside of transactions: at least once over restarts of the query."""

    def __init__(self, client: Client, settings: ProducerSettings) -> None:
        super().__init__(client, settings, create_topics=True)
        self.machine = BodyMachine(settings)
        self.deliveries = Deliveries()


class TransactionalBodyProducer(_BodySender, TransactionalProducer):
    """A producer of encoded batches in a transaction."""

    def __init__(self, client: Client, transaction: TransactionSettings, settings: ProducerSettings) -> None:
        TransactionalProducer.__init__(self, client, transaction, settings, create_topics=True)
        self.machine = BodyMachine(settings, transactional=True)
        self.deliveries = Deliveries()
