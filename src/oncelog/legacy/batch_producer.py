"""A transactional producer of batches that are encoded already."""

from __future__ import annotations

from typing import Final

from oncelog.base.ids import TopicPartition
from oncelog.base.units import MIB
from oncelog.client.blocking.link import now_ms
from oncelog.client.blocking.transactions import TransactionalProducer

BUFFER_BYTES: Final = 32 * MIB


class BatchProducer(TransactionalProducer):
    """``send_batch`` beside ``send``."""

    def send_batch(self, partition: TopicPartition, batch: bytearray) -> None:
        """Take one batch into the transaction; waits while too much is buffered. Raises TransactionFailed."""
        self.transactions.require_open("send records")
        self.machine.add_batch(partition, batch, now_ms())
        self._step(flush=True, waits=False)
        while self.machine.buffered_bytes >= BUFFER_BYTES:
            self._step(flush=True, waits=True)
        self._raise_failure()
