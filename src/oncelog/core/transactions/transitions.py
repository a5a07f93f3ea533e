"""The transitions of one transactional id (KIP-98, KIP-360, -890, -939).

The rule: values only. Every function takes a Transaction and returns the one that follows; none knows who asked, and
none changes anything. ``states`` has the table of transitions; :func:`follow` refuses all others.
"""

from __future__ import annotations

from oncelog.base.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
    TransactionalId,
)
from oncelog.base.invariant import InvariantViolation, invariant
from oncelog.core.transactions.model import NO_IDENTITY, Identity
from oncelog.core.transactions.settings import TRANSACTIONS_V2
from oncelog.core.transactions.states import AT_REST, TransactionState, may_follow
from oncelog.core.transactions.transaction import (
    MAX_EPOCH,
    NO_TIMESTAMP,
    Transaction,
    is_exhausted,
)


def new(transactional_id: TransactionalId, producer_id: ProducerId, now_ms: int) -> Transaction:
    """The state of an id that was never initialised; it is not stored like this."""
    return Transaction(
        transactional_id, Identity(producer_id, NO_PRODUCER_EPOCH), 0, TransactionState.EMPTY, last_update_ms=now_ms
    )


def follow(transaction: Transaction, **changes: object) -> Transaction:
    """The transaction with ``changes``, if the table has the transition. The previous producer id is kept by default
    as Apache Kafka does: that of the state before."""
    changes.setdefault("previous_producer_id", transaction.identity.producer_id)
    following: Transaction = transaction._replace(**changes)  # type: ignore[arg-type]  # each caller's are right
    if not may_follow(transaction.state, following.state):
        raise InvariantViolation(
            "X1: a transaction cannot do that in its state",
            {
                "transactional_id": transaction.transactional_id,
                "state": transaction.state.name,
                "following": following.state.name,
            },
        )
    return following


def initialise(
    transaction: Transaction, identity: Identity, last: ProducerEpoch, timeout: int, now: int
) -> Transaction:
    """InitProducerId: the producer has ``identity`` from now on."""
    return follow(
        transaction,
        identity=identity,
        last_epoch=last,
        timeout_ms=timeout,
        state=TransactionState.EMPTY,
        partitions=(),
        start_ms=NO_TIMESTAMP,
        last_update_ms=now,
    )


def keep(transaction: Transaction, following: Identity, last: ProducerEpoch, timeout: int, now: int) -> Transaction:
    """InitProducerId of an instance that keeps the open transaction: it has the identity ``following`` from now on."""
    return follow(
        transaction,
        state=TransactionState.ONGOING,
        next_identity=following,
        last_epoch=last,
        timeout_ms=timeout,
        last_update_ms=now,
    )


def add_partitions(
    transaction: Transaction, added: tuple[TopicPartition, ...], client_version: int, now_ms: int
) -> Transaction:
    """Add partitions; the first ones begin the transaction."""
    return follow(
        transaction,
        state=TransactionState.ONGOING,
        partitions=transaction.partitions + added,
        start_ms=now_ms if transaction.state in AT_REST else transaction.start_ms,
        last_update_ms=now_ms,
        client_version=client_version,
    )


def needs_producer_id(transaction: Transaction, client_version: int) -> bool:
    """True if the end of the transaction has to rotate the producer id."""
    return client_version >= TRANSACTIONS_V2 and is_exhausted(transaction.client_identity.producer_epoch)


def prepare(
    transaction: Transaction, *, committed: bool, client_version: int, new_producer_id: ProducerId, now_ms: int
) -> Transaction:
    """Decide the transaction. With Transactions V2 its epoch rises, and the markers already carry the new one.

    ``new_producer_id`` is used where :func:`needs_producer_id` says so.
    """
    current = transaction.client_identity
    changes: dict[str, object] = {"last_epoch": transaction.last_epoch}
    if client_version >= TRANSACTIONS_V2:
        identity = transaction.identity
        changes["identity"] = Identity(identity.producer_id, ProducerEpoch(min(identity.producer_epoch + 1, MAX_EPOCH)))
        changes["last_epoch"] = current.producer_epoch
        if is_exhausted(current.producer_epoch):
            invariant(new_producer_id != NO_PRODUCER_ID, "X6: rotation without a producer id")
            epoch = 0 if transaction.is_kept else NO_PRODUCER_EPOCH
            changes["next_identity"] = Identity(new_producer_id, ProducerEpoch(epoch))
        elif transaction.is_kept:
            changes["next_identity"] = Identity(current.producer_id, ProducerEpoch(current.producer_epoch + 1))
    return follow(
        transaction,
        state=TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT,
        previous_producer_id=current.producer_id,
        start_ms=now_ms if transaction.state in AT_REST else transaction.start_ms,
        last_update_ms=now_ms,
        client_version=client_version,
        **changes,
    )


def fence_and_prepare_abort(
    transaction: Transaction, *, transaction_version: int, new_producer_id: ProducerId, now_ms: int
) -> Transaction:
    """Abort the open transaction for a newer instance or a time-out, under an epoch that its client does not have.

    With Transactions V2 that is what every abort does. Without, the fencing raises the epoch itself, and forgets the
    last one, so that nothing the old client sends can pass as a retry.
    """
    if transaction_version >= TRANSACTIONS_V2:
        return prepare(
            transaction,
            committed=False,
            client_version=transaction_version,
            new_producer_id=new_producer_id,
            now_ms=now_ms,
        )
    current, identity = transaction.client_identity, transaction.identity
    raised = Identity(identity.producer_id, ProducerEpoch(min(identity.producer_epoch + 1, MAX_EPOCH)))
    raised_next = Identity(current.producer_id, ProducerEpoch(min(current.producer_epoch + 1, MAX_EPOCH)))
    return follow(
        transaction,
        state=TransactionState.PREPARE_ABORT,
        identity=raised,
        next_identity=raised_next if transaction.is_kept else NO_IDENTITY,
        last_epoch=NO_PRODUCER_EPOCH,
        previous_producer_id=current.producer_id,
        last_update_ms=now_ms,
        client_version=0,
    )


def identity_after(transaction: Transaction) -> Identity:
    """The identity for the next transaction, which takes effect when a decided one completes."""
    following = transaction.next_identity
    if transaction.is_kept:
        return following
    if following.producer_id != NO_PRODUCER_ID:
        return Identity(following.producer_id, ProducerEpoch(0))
    return transaction.identity


def complete(transaction: Transaction, now_ms: int) -> Transaction:
    """Complete the transaction, all markers being written; the identity for the next one takes effect."""
    previous_producer_id = transaction.identity.producer_id
    if transaction.is_kept:
        # Who ended it named the next id; that is the one a retry will name.
        previous_producer_id = transaction.previous_producer_id
    committed = transaction.state is TransactionState.PREPARE_COMMIT
    return follow(
        transaction,
        state=TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT,
        identity=identity_after(transaction),
        previous_producer_id=previous_producer_id,
        next_identity=NO_IDENTITY,
        partitions=(),
        last_update_ms=now_ms,
    )
