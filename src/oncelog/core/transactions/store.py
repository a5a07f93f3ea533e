"""The transactions of a shard and their ``__transaction_state`` records; ids at rest stay encoded.

A broker may load a million transactional ids, nearly all of them at rest and never used again. These are kept *packed*,
as the values of their records (a third of the memory, and no work for the garbage collector). Transactions changed
since the load stay unpacked, because no record has their last epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from sys import intern
from typing import Final

from oncelog.base.ids import (
    NO_PRODUCER_ID,
    ProducerEpoch,
    ProducerId,
    TopicName,
    TopicPartition,
    TransactionalId,
    by_topic,
)
from oncelog.core.transactions.identity import Identity
from oncelog.core.transactions.model import FLEXIBLE_RECORDS, Record
from oncelog.core.transactions.settings import TransactionSettings
from oncelog.core.transactions.states import STORED, TransactionState
from oncelog.core.transactions.transitions import Transaction
from oncelog.records.internal import transaction_records
from oncelog.records.internal.transaction_records import TransactionValue, Unknown


def value_version(transaction: Transaction, settings: TransactionSettings) -> int:
    """The version of the transaction's record: flexible if the cluster allows it (which keeps a downgrade possible), or
    if the fixed-width version lacks a needed field."""
    needs_tags = transaction.next_identity.producer_id != NO_PRODUCER_ID or (
        transaction.previous_producer_id not in (NO_PRODUCER_ID, transaction.identity.producer_id)
    )
    return 1 if settings.transaction_version >= FLEXIBLE_RECORDS or needs_tags else 0


def is_whole(value: bytes) -> bool:
    """True if a record's value has everything but the last epoch; version 0 lacks the tagged fields."""
    return value[1] >= transaction_records.FLEXIBLE_SINCE


def record_of(transaction: Transaction, settings: TransactionSettings) -> Record:
    topics = tuple((topic, tuple(partitions)) for topic, partitions in by_topic(transaction.partitions).items())
    following = transaction.next_identity
    value = TransactionValue(
        *transaction.identity,
        transaction.timeout_ms,
        transaction.state,
        None if transaction.state is TransactionState.EMPTY else topics,
        transaction.last_update_ms,
        transaction.start_ms,
        transaction.previous_producer_id,
        following.producer_id,
        transaction.client_version,
        following.producer_epoch,
    )
    version = value_version(transaction, settings)
    key = transaction_records.encode_key(transaction.transactional_id)
    return key, transaction_records.encode_value(value, version)


def transaction_of(transactional_id: TransactionalId, value: TransactionValue) -> Transaction:
    return Transaction(
        transactional_id,
        Identity(ProducerId(value.producer_id), ProducerEpoch(value.producer_epoch)),
        value.timeout_ms,
        TransactionState(value.status),
        value.last_update_timestamp,
        value.start_timestamp,
        tuple(
            TopicPartition(TopicName(intern(topic)), partition)  # a million ids share few topics
            for topic, partitions in value.partitions or ()
            for partition in partitions
        ),
        ProducerId(value.previous_producer_id),
        Identity(ProducerId(value.next_producer_id), ProducerEpoch(value.next_producer_epoch)),
        value.client_transaction_version,
    )


_STATES: Final = tuple(TransactionState)


class TransactionStore:
    def __init__(self) -> None:
        self.skipped: Counter[str] = Counter()
        """Unreadable records by reason; for the node to log."""
        self.counts = [0] * len(_STATES)
        """The number of ids by state number, kept up to date: counting a million would block the loop."""
        self._live: dict[TransactionalId, Transaction] = {}
        self._packed: dict[TransactionalId, bytes] = {}

    def __len__(self) -> int:
        return len(self._live) + len(self._packed)

    def get(self, transactional_id: TransactionalId) -> Transaction | None:
        transaction = self._live.get(transactional_id)
        if transaction is None and (packed := self._packed.get(transactional_id)) is not None:
            transaction = _unpacked(transactional_id, packed)
        return transaction

    def put(self, transaction: Transaction) -> None:
        self._count_out(transaction.transactional_id)
        # Unpacked, because no record has the last epoch.
        self._live[transaction.transactional_id] = transaction
        self.counts[transaction.state] += 1

    def remove(self, transactional_id: TransactionalId) -> None:
        if self._count_out(transactional_id):
            self._live.pop(transactional_id, None)

    def _count_out(self, transactional_id: TransactionalId) -> bool:
        """Remove an id from the counts and from the packed ones. Returns True if it is unpacked."""
        transaction = self._live.get(transactional_id)
        if transaction is not None:
            self.counts[transaction.state] -= 1
            return True
        packed = self._packed.pop(transactional_id, None)
        if packed is not None:
            self.counts[transaction_records.status_of(packed)] -= 1
        return False

    def clear(self) -> None:
        self.counts = [0] * len(_STATES)
        self._live.clear()
        self._packed.clear()

    def load(self, key: bytes, value: bytes | None) -> None:
        """Apply one record while the log is being loaded."""
        name = transaction_records.decode_key(key)
        if isinstance(name, Unknown):
            self.skipped[name.reason] += 1
            return
        transactional_id = TransactionalId(name)
        if value is None:
            self.remove(transactional_id)
        # Kept packed: a third of the memory, and invisible to the garbage collector.
        elif transaction_records.is_usual_at_rest(value):
            if transactional_id in self._live or transactional_id in self._packed:
                self.remove(transactional_id)
            self._packed[transactional_id] = value
            self.counts[transaction_records.status_of(value)] += 1
        elif (transaction := self.read(transactional_id, value)) is not None:
            self.put(transaction)

    def read(self, transactional_id: TransactionalId, value: bytes) -> Transaction | None:
        """The transaction in a record's value; None, and counted, if it cannot be one."""
        decoded = transaction_records.decode_value(value)
        if isinstance(decoded, Unknown):
            self.skipped[decoded.reason] += 1
            return None
        if decoded.status not in STORED:
            self.skipped[f"state {decoded.status}"] += 1
            return None
        return transaction_of(transactional_id, decoded)

    def ids(self) -> list[TransactionalId]:
        return [*self._packed, *self._live]

    def items(self) -> Iterator[tuple[TransactionalId, Transaction]]:
        """All transactions, unpacked one at a time. For tests: with a million ids it takes seconds."""
        for transactional_id, packed in self._packed.items():
            yield transactional_id, _unpacked(transactional_id, packed)
        yield from self._live.items()

    def unpacked(self) -> Iterator[tuple[TransactionalId, Transaction]]:
        """The unpacked transactions: all that are not at rest, and some that are."""
        yield from self._live.items()

    def states(self, *, at_rest: bool = True) -> Iterator[tuple[TransactionalId, TransactionState, ProducerId, int]]:
        """Id, state, producer id and start time of all, without unpacking; ``at_rest=False`` may skip those at rest."""
        for transactional_id, packed in self._packed.items() if at_rest else ():
            status, producer_id, start_ms = transaction_records.state_of(packed)
            yield transactional_id, _STATES[status], ProducerId(producer_id), start_ms
        for transactional_id, transaction in self._live.items():
            yield transactional_id, transaction.state, transaction.identity.producer_id, transaction.start_ms


def _unpacked(transactional_id: TransactionalId, packed: bytes) -> Transaction:
    decoded = transaction_records.decode_value(packed)
    assert not isinstance(decoded, Unknown)  # only readable values are packed
    return transaction_of(transactional_id, decoded)
