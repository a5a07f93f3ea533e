"""The part of a transactional producer that never waits: what the delivery of batches has to know of the transaction.

``blocking.transactions`` and ``aio.transactions`` put it in front of their producers. A batch that is given up fails
the transaction instead of the next call, and what fails is raised in the transaction's words.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Final

from oncelog.base.ids import TopicPartition
from oncelog.client.errors import ConfigError
from oncelog.client.machine.batch_delivery import BatchDelivery
from oncelog.client.machine.first_batch_delay import FirstBatchDelay
from oncelog.client.machine.producer import Failed, Outcome, ProducerSettings
from oncelog.client.machine.transaction_states import State
from oncelog.client.machine.transaction_values import StoredTransaction
from oncelog.client.machine.transactions import TransactionMachine

BUSY_PAUSE_MS: Final = 20
"""The pause before asking again while the transaction before is being completed; Apache Kafka's client's."""


def transactional_settings(settings: ProducerSettings | None) -> ProducerSettings:
    """The settings of a transactional producer, or the defaults. Raises ConfigError unless acks=all."""
    settings = settings or ProducerSettings()
    if settings.acks != -1:
        raise ConfigError("a transactional producer needs acks=all")
    return settings


class TransactionalDelivery(BatchDelivery):
    """Delivery within transactions, put in front of a producer, which makes the machine and the delay."""

    transactions: TransactionMachine
    _first_batch_delay: FirstBatchDelay

    @property
    def state(self) -> State:
        """The producer's state; see ``machine.transaction_states``."""
        return self.transactions.state

    @property
    def prepared(self) -> StoredTransaction | None:
        """The prepared transaction: by ``prepare``, or found by ``initialize(keep_prepared=True)``."""
        return self.transactions.prepared

    def begin(self) -> None:
        """Begin a transaction. Raises OutOfTurn."""
        self.transactions.begin()

    @abstractmethod
    def _now_us(self) -> int:
        """The time in microseconds, for the pause before a transaction's first batch."""

    def _version_limit(self, partitions: Iterable[TopicPartition]) -> int | None:
        by_name, by_transaction = super()._version_limit(partitions), self.transactions.produce_version_limit
        return by_name if by_transaction is None else by_transaction

    def _note(self, outcome: Outcome | None) -> None:
        if outcome is None:
            return
        if self.on_outcome is not None:
            self.on_outcome(outcome)
        self._first_batch_delay.answered(self._now_us())
        if isinstance(outcome, Failed):
            what = f"records of the transaction for {outcome.partition}"
            self.transactions.batch_failed(outcome.error_code, outcome.message, what)

    def _raise_failure(self) -> None:
        self.transactions.raise_failure("the transaction")
