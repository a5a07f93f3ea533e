"""A transactional producer of batches that are encoded already."""

from __future__ import annotations

from typing import Final

from oncelog.base.ids import TopicPartition
from oncelog.base.units import MIB
from oncelog.client.blocking.client import Client
from oncelog.client.blocking.link import now_ms
from oncelog.client.blocking.producer import ProducerSettings
from oncelog.client.blocking.transactions import TransactionalProducer
from oncelog.client.machine.producer import PendingBatch, ProducerMachine, _Partition
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.records.batch import HEADER, TRANSACTIONAL, read_header
from oncelog.records.builder import seal
from oncelog.records.record import Record

BUFFER_BYTES: Final = 32 * MIB


class _Encoded(list[Record]):
    """Stands for the records of an encoded batch: only their number is asked for."""

    def __init__(self, batch: bytearray) -> None:
        super().__init__()
        self.batch = batch
        self.records = read_header(batch).record_count

    def __len__(self) -> int:
        return self.records


class _BatchMachine(ProducerMachine):
    """A producer machine that takes batches; sequences, order and repetition are as ever."""

    def add_batch(self, partition: TopicPartition, batch: bytearray, now: int) -> None:
        """Queue one batch, which is the machine's from now on."""
        self._batches += 1
        pending = PendingBatch(partition, self._batches, now, records=_Encoded(batch), size_bytes=len(batch))
        self._partitions.setdefault(partition, _Partition()).queue.append(pending)
        self.buffered_bytes += len(batch)

    def _encode(self, batch: PendingBatch, producer_id: int, producer_epoch: int) -> bytearray:
        if not isinstance(batch.records, _Encoded):
            return super()._encode(batch, producer_id, producer_epoch)
        encoded = batch.records.batch
        header = read_header(encoded)._replace(
            producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=batch.sequence
        )
        HEADER.pack_into(encoded, 0, *header._replace(attributes=header.attributes | TRANSACTIONAL))
        seal(encoded)
        return encoded


class BatchProducer(TransactionalProducer):
    """``send_batch`` beside ``send``."""

    def __init__(self, client: Client, transaction: TransactionSettings, settings: ProducerSettings) -> None:
        super().__init__(client, transaction, settings)
        self.machine: _BatchMachine = _BatchMachine(settings, transactional=True)

    def send_batch(self, partition: TopicPartition, batch: bytearray) -> None:
        """Take one batch into the transaction; waits while too much is buffered. Raises TransactionFailed."""
        self.transactions.require_open("send records")
        self.machine.add_batch(partition, batch, now_ms())
        self._step(flush=True, wait_ms=0)
        while self.machine.buffered_bytes >= BUFFER_BYTES:
            self._step(flush=True, wait_ms=100)
        self._raise_failure()
