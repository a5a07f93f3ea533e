"""Validation of producers' batches and transaction markers, as in Apache Kafka 4.3."""

from __future__ import annotations

from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_PRODUCER_EPOCH
from oncelog.base.units import INT16_MAX, INT32_MAX
from oncelog.core.producers.entry import ProducerEntry

TRANSACTIONS_V2: Final = 2


class ProducerRefusal(Exception):
    """An expected rejection, without any change; ``error_code`` is the protocol's error."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        self.error_code = error_code
        self.message = message
        super().__init__(message)


def check_data_epoch(entry: ProducerEntry, epoch: int, offset: int) -> None:
    """Raises ProducerRefusal for an older epoch."""
    if epoch < entry.epoch:
        raise ProducerRefusal(
            # Recoverable for the client.
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"Epoch of producer {entry.producer_id} at offset {offset} is {epoch}, "
            f"which is smaller than the last seen epoch {entry.epoch}",
        )


def check_sequence(
    entry: ProducerEntry, epoch: int, first_sequence: int, offset: int, *, begins_at_zero: bool = False
) -> None:
    """Raises ProducerRefusal."""
    # A new epoch begins at sequence 0. Within an epoch sequences are consecutive; 0 follows 2³¹−1.
    if epoch != entry.epoch:
        # With V2 also the producer's first batch here: another may still be on its way to a former leader, and could
        # not follow this one.
        if first_sequence != 0 and (begins_at_zero or entry.epoch != NO_PRODUCER_EPOCH):
            raise ProducerRefusal(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Invalid sequence number for new epoch of producer {entry.producer_id} at offset {offset}: {epoch} "
                f"(request epoch), {first_sequence} (seq. number), {entry.epoch} (current producer epoch)",
            )
        return
    # Without state for the producer (never seen, expired, or its records deleted) any sequence is accepted (KIP-360):
    # only the client knows it. Only older brokers returned UNKNOWN_PRODUCER_ID.
    if entry.epoch == NO_PRODUCER_EPOCH:
        return
    last = entry.last_sequence
    if first_sequence != last + 1 and not (first_sequence == 0 and last == INT32_MAX):
        raise ProducerRefusal(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for producer {entry.producer_id} at offset {offset}: "
            f"{first_sequence} (incoming seq. number), {last} (current end sequence number)",
        )


def check_transactional(entry: ProducerEntry, transactional: bool, offset: int) -> None:
    """Raises ProducerRefusal."""
    # The producer has an open transaction.
    if entry.transaction_first_offset is not None and not transactional:
        raise ProducerRefusal(
            ErrorCode.INVALID_TXN_STATE,
            f"Expected transactional write from producer {entry.producer_id} at offset {offset}",
        )


def check_marker(
    entry: ProducerEntry, epoch: int, coordinator_epoch: int, transaction_version: int, offset: int
) -> None:
    """Raises ProducerRefusal."""
    # The marker's epoch is not older than the producer's. With Transactions V2 it is strictly greater, except for a
    # retry: equal, with no transaction open or at the last possible epoch (KIP-890).
    strict = transaction_version >= TRANSACTIONS_V2
    if epoch < entry.epoch or (strict and epoch == entry.epoch):
        # The last possible epoch cannot rise any further.
        retried = epoch == entry.epoch and (entry.transaction_first_offset is None or epoch == INT16_MAX)
        if not (strict and retried):
            raise ProducerRefusal(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {entry.producer_id} at offset {offset} is {epoch}, which is "
                f"{'<=' if strict else '<'} the last seen epoch {entry.epoch} (TV{transaction_version})",
            )
    if coordinator_epoch < entry.coordinator_epoch:
        raise ProducerRefusal(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"Invalid coordinator epoch for producerId {entry.producer_id} at offset {offset}: "
            f"{coordinator_epoch} (zombie), {entry.coordinator_epoch} (current)",
        )
