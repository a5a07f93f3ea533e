"""The state of one transactional id as a value, its invariants and its transitions (KIP-98, KIP-360, -890, -939).

The rule: every transition takes a Transaction and returns the next one, without side effects. :func:`follow` rejects
transitions that the table of ``states`` lacks.

docs/internals/transactions.md explains epochs, *rotation* to a new producer id once a client has used epoch 32766
(``EXHAUSTED``), and *kept* transactions. The *next* producer id takes effect at Complete, because markers still carry
the old one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog.base.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
    TransactionalId,
)
from oncelog.base.invariant import InvariantViolation, invariant
from oncelog.base.transaction_verdicts import NEVER_TIMES_OUT
from oncelog.core.transactions.identity import NO_IDENTITY, Identity
from oncelog.core.transactions.settings import TRANSACTIONS_V2
from oncelog.core.transactions.states import AT_REST, PREPARED, TransactionState, may_follow

MAX_EPOCH: Final = ProducerEpoch(2**15 - 1)
EXHAUSTED: Final = ProducerEpoch(MAX_EPOCH - 1)
NO_TIMESTAMP: Final = -1


class Transaction(NamedTuple):
    """All but ``last_epoch`` is in the log."""

    transactional_id: TransactionalId
    identity: Identity
    timeout_ms: int
    state: TransactionState
    last_update_ms: int
    start_ms: int = NO_TIMESTAMP
    partitions: tuple[TopicPartition, ...] = ()
    """In the order in which they were added."""
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    """The producer id before the last transition: recognises a retry across a rotation."""
    next_identity: Identity = NO_IDENTITY
    """An id with epoch −1: a rotation that takes effect, with epoch 0, at Complete."""
    client_version: int = 0
    """The transaction version of the client that made the last transition."""
    last_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    """The epoch before the last bump: recognises a retry. Lost in a restart, as in Apache Kafka."""

    @property
    def is_kept(self) -> bool:
        """Another instance has taken over the open transaction (KIP-939)."""
        return self.next_identity.producer_epoch != NO_PRODUCER_EPOCH

    @property
    def client_identity(self) -> Identity:
        """The identity that the client must use: the transaction's, or the next one if it was kept."""
        return self.next_identity if self.is_kept else self.identity

    @property
    def deadline_ms(self) -> int | None:
        """None if the transaction never times out."""
        if self.state is not TransactionState.ONGOING or self.timeout_ms == NEVER_TIMES_OUT:
            return None
        # Apache Kafka aborts only when more than the time-out has passed.
        return self.start_ms + self.timeout_ms + 1


def is_exhausted(epoch: ProducerEpoch) -> bool:
    """True if a client cannot use a higher epoch with its producer id."""
    return epoch >= EXHAUSTED


def check(transaction: Transaction) -> None:
    """Raise InvariantViolation unless the invariants of one transaction hold (docs/internals/transactions.md)."""
    state, facts = transaction.state, {"transactional_id": transaction.transactional_id}
    is_open = state is TransactionState.ONGOING or state in PREPARED
    invariant(transaction.identity.producer_id >= 0 <= transaction.identity.producer_epoch, "X2: no identity", **facts)
    invariant(is_open or not transaction.partitions, "X3: partitions of no transaction", **facts)
    invariant(len(set(transaction.partitions)) == len(transaction.partitions), "X3: a partition twice", **facts)
    invariant((transaction.start_ms == NO_TIMESTAMP) == (state is TransactionState.EMPTY), "X4: start time", **facts)
    invariant(
        transaction.client_identity.producer_epoch <= EXHAUSTED
        or state not in AT_REST - {TransactionState.COMPLETE_ABORT},
        "X5: an epoch no client may have",
        **facts,
    )
    following = transaction.next_identity
    invariant(following == NO_IDENTITY or following.producer_id >= 0, "X6: next epoch without an id", **facts)
    invariant(following == NO_IDENTITY or is_open, "X6: a next producer id outside a transaction", **facts)
    invariant(following == NO_IDENTITY or state in PREPARED or transaction.is_kept, "X6: rotation is prepared", **facts)


def new(transactional_id: TransactionalId, producer_id: ProducerId, now_ms: int) -> Transaction:
    """The state of a never initialised id; not stored in this form."""
    return Transaction(
        transactional_id, Identity(producer_id, NO_PRODUCER_EPOCH), 0, TransactionState.EMPTY, last_update_ms=now_ms
    )


def follow(transaction: Transaction, **changes: object) -> Transaction:
    """Raises InvariantViolation if the table lacks the transition."""
    # As in Apache Kafka: by default the producer id of the state before.
    changes.setdefault("previous_producer_id", transaction.identity.producer_id)
    following: Transaction = transaction._replace(**changes)  # type: ignore[arg-type]  # each caller's are right
    if not may_follow(transaction.state, following.state):
        raise InvariantViolation(
            "X1: a transition that the state does not allow",
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
    """InitProducerId of an instance that keeps the open transaction, with the identity ``following`` from now on."""
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
    ``new_producer_id`` is used if :func:`needs_producer_id`."""
    current = transaction.client_identity
    changes: dict[str, object] = {"last_epoch": transaction.last_epoch}
    if client_version >= TRANSACTIONS_V2:
        identity = transaction.identity
        # The raised epoch fences late batches of this transaction (KIP-890).
        changes["identity"] = Identity(identity.producer_id, ProducerEpoch(min(identity.producer_epoch + 1, MAX_EPOCH)))
        changes["last_epoch"] = current.producer_epoch
        if is_exhausted(current.producer_epoch):
            invariant(new_producer_id != NO_PRODUCER_ID, "X6: rotation without a producer id")
            # A kept transaction's next identity belongs to a client, which needs a real epoch.
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
    """Abort the open transaction, for a newer instance or a time-out, under an epoch that its client does not have."""
    if transaction_version >= TRANSACTIONS_V2:
        return prepare(
            transaction,
            committed=False,
            client_version=transaction_version,
            new_producer_id=new_producer_id,
            now_ms=now_ms,
        )
    # With V2 every abort raises the epoch. Without, fencing raises it and clears the last one, so that no request of
    # the old client can pass as a retry.
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
    """The identity for the next transaction, effective when a decided one completes."""
    following = transaction.next_identity
    if transaction.is_kept:
        return following
    if following.producer_id != NO_PRODUCER_ID:
        return Identity(following.producer_id, ProducerEpoch(0))
    return transaction.identity


def complete(transaction: Transaction, now_ms: int) -> Transaction:
    """Complete the transaction after all markers; the next identity takes effect."""
    # A retry of EndTxn after a rotation names the old producer id.
    previous_producer_id = transaction.identity.producer_id
    if transaction.is_kept:
        # EndTxn named the next id, and so will a retry.
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
