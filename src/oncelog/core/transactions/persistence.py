"""Transactions as records of ``__transaction_state``, and back. ``last_epoch`` is in no record."""

from __future__ import annotations

from sys import intern

from oncelog.base.ids import (
    NO_PRODUCER_ID,
    ProducerEpoch,
    ProducerId,
    TopicName,
    TopicPartition,
    TransactionalId,
)
from oncelog.core.transactions.model import FLEXIBLE_RECORDS, Identity, Record
from oncelog.core.transactions.settings import TransactionSettings
from oncelog.core.transactions.states import TransactionState
from oncelog.core.transactions.transaction import Transaction
from oncelog.records.internal import transaction_records
from oncelog.records.internal.transaction_records import TransactionValue


def value_version(transaction: Transaction, settings: TransactionSettings) -> int:
    """The version of the transaction's record: flexible when the cluster allows it (then a downgrade is possible), and
    where the fixed-width one lacks a field that the transaction needs."""
    needs_tags = transaction.next_identity.producer_id != NO_PRODUCER_ID or (
        transaction.previous_producer_id not in (NO_PRODUCER_ID, transaction.identity.producer_id)
    )
    return 1 if settings.transaction_version >= FLEXIBLE_RECORDS or needs_tags else 0


def is_whole(value: bytes) -> bool:
    """True if a record's value holds all of its transaction but the last epoch; version 0 lacks the tagged fields."""
    return value[1] >= transaction_records.FLEXIBLE_SINCE


def record_of(transaction: Transaction, settings: TransactionSettings) -> Record:
    """The record that stores the transaction."""
    grouped: dict[TopicName, list[int]] = {}
    for topic, partition in transaction.partitions:
        grouped.setdefault(topic, []).append(partition)
    topics = tuple((topic, tuple(partitions)) for topic, partitions in grouped.items())
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
    """The transaction a record stores."""
    return Transaction(
        transactional_id,
        Identity(ProducerId(value.producer_id), ProducerEpoch(value.producer_epoch)),
        value.timeout_ms,
        TransactionState(value.status),
        value.last_update_timestamp,
        value.start_timestamp,
        tuple(
            TopicPartition(TopicName(intern(topic)), partition)  # of a million ids many have the same few topics
            for topic, partitions in value.partitions or ()
            for partition in partitions
        ),
        ProducerId(value.previous_producer_id),
        Identity(ProducerId(value.next_producer_id), ProducerEpoch(value.next_producer_epoch)),
        value.client_transaction_version,
    )
