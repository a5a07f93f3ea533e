"""A transactional producer: writes records of several partitions and a group's offsets together or not at all.

::

    producer = TransactionalProducer(client, TransactionSettings("orders-1"))
    producer.initialize()
    with producer.transaction():
        producer.send("out", b"...")
        producer.send_offsets({partition: Committed(next_offset)}, consumer.group_metadata)

The rules are those of ``programs.transactions``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import TracebackType

from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.client.blocking.producer import Producer, ProducerSettings
from oncelog.client.errors import ClientError
from oncelog.client.machine.offsets import Committed, GroupMetadata
from oncelog.client.machine.transaction_values import Ended, StoredTransaction, TransactionSettings
from oncelog.client.programs.transactions import TransactionalDelivery, transactional_settings


class TransactionalProducer(TransactionalDelivery, Producer):
    """A transactional producer, for one thread; a context manager that aborts an open transaction at its end."""

    def __init__(
        self,
        client: Client,
        transaction: TransactionSettings,
        settings: ProducerSettings | None = None,
        *,
        create_topics: bool = False,
    ) -> None:
        super().__init__(
            client,
            transactional_settings(settings),
            create_topics=create_topics,
            transactional_id=transaction.transactional_id,
        )
        self._open_transactions(transaction)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._abort_if_open()
        finally:
            self.close()

    def initialize(self, *, keep_prepared: bool = False) -> StoredTransaction | None:
        """Fence older instances and abort what they left open; with ``keep_prepared`` return it instead (KIP-939).

        Raises UnsupportedRequest if the cluster lacks the two-phase commit requested.
        """
        return self._run(self._initializing(keep_prepared))

    def send_offsets(self, offsets: Mapping[TopicPartition, Committed], group: GroupMetadata) -> None:
        """Commit a group's offsets with the transaction. Raises TransactionFailed if the group moved on."""
        self._run(self._sending_offsets(offsets, group))

    def commit(self) -> None:
        """Commit the transaction. Raises TransactionFailed, ProducerUnusable, and ClientError while the outcome is
        unknown.
        """
        self._run(self._committing())

    def abort(self) -> None:
        """Abort the transaction; unsent records are dropped. The producer is usable again."""
        self._run(self._aborting())

    def prepare(self) -> StoredTransaction:
        """Flush, and prepare the transaction for a decision made elsewhere: store the result with that decision."""
        return self._run(self._preparing())

    def complete(self, stored: StoredTransaction | None) -> Ended:
        """End the prepared transaction, after ``prepare`` or recovery: commit if ``stored`` names it, else abort."""
        return self._run(self._completing(stored))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit at the end of the block; abort when it raises, unless the producer is unusable by then."""
        self.begin()
        try:
            yield
            self.commit()
        except BaseException:
            self._abort_if_open()
            raise

    def _abort_if_open(self) -> None:
        if self.transactions.is_open:
            with contextlib.suppress(ClientError):
                self.abort()


__all__ = ["Committed", "Ended", "GroupMetadata", "StoredTransaction", "TransactionSettings", "TransactionalProducer"]
