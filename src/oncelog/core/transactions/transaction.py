"""One transactional id: what is known about it, and what each transition makes of it (KIP-98, KIP-360, -890, -939).

The rule: values only. Every function takes a Transaction and returns the one that follows; none knows who asked, and
none changes anything. ``states.py`` says which transitions there are; :func:`follow` refuses all others.

Epochs. The client may use epochs up to 32766 (``EXHAUSTED``); 32767 is kept so that the coordinator can always fence.
Where the next epoch would be 32767 a new producer id is needed (*rotation*): at once in InitProducerId, and at the end
of a transaction as the *next* producer id, which takes over at Complete, because the markers still carry the old one.
A *kept* transaction (InitProducerId with KeepPreparedTxn) is Ongoing under its own id and epoch, those the markers
need, and has the id and epoch of the instance that may end it as the next ones.
"""

from __future__ import annotations

from sys import intern
from typing import Final, NamedTuple

from oncelog.base.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerEpoch,
    ProducerId,
    TopicName,
    TopicPartition,
    TransactionalId,
)
from oncelog.base.invariant import InvariantViolation, invariant
from oncelog.base.transaction_verdicts import NEVER_TIMES_OUT
from oncelog.core.transactions.model import (
    FLEXIBLE_RECORDS,
    NO_IDENTITY,
    TRANSACTIONS_V2,
    Identity,
    Record,
    TransactionSettings,
)
from oncelog.core.transactions.states import AT_REST, PREPARED, TransactionState, may_follow
from oncelog.records.internal import transaction_records
from oncelog.records.internal.transaction_records import TransactionValue

MAX_EPOCH: Final = ProducerEpoch(2**15 - 1)
EXHAUSTED: Final = ProducerEpoch(MAX_EPOCH - 1)
NO_TIMESTAMP: Final = -1


class Transaction(NamedTuple):
    """The state of a transactional id. All but ``last_epoch`` is in the log."""

    transactional_id: TransactionalId
    identity: Identity
    timeout_ms: int
    state: TransactionState
    last_update_ms: int
    start_ms: int = NO_TIMESTAMP
    partitions: tuple[TopicPartition, ...] = ()
    """In the order in which they were added."""
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    """Before the last transition: recognises a retry across a rotation."""
    next_identity: Identity = NO_IDENTITY
    """Epoch −1 with an id: a rotation that takes effect, with epoch 0, at Complete."""
    client_version: int = 0
    """The transaction version of the client that made the last transition."""
    last_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    """The epoch before the last bump: recognises a retry. Gone after a restart, as in Apache Kafka."""

    @property
    def is_kept(self) -> bool:
        """Whether another instance has taken over an open transaction (KIP-939)."""
        return self.next_identity.producer_epoch != NO_PRODUCER_EPOCH

    @property
    def client_identity(self) -> Identity:
        """What the client has to name: that of the transaction, unless the transaction was kept."""
        return self.next_identity if self.is_kept else self.identity

    @property
    def deadline_ms(self) -> int | None:
        """From when on the transaction has timed out; None where it does not."""
        if self.state is not TransactionState.ONGOING or self.timeout_ms == NEVER_TIMES_OUT:
            return None
        return self.start_ms + self.timeout_ms + 1


def is_exhausted(epoch: ProducerEpoch) -> bool:
    """Whether a client may use no higher epoch with its producer id."""
    return epoch >= EXHAUSTED


def new(transactional_id: TransactionalId, producer_id: ProducerId, now_ms: int) -> Transaction:
    """An id that was never initialised; it is not stored like this."""
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
    """A producer has come (InitProducerId) and has ``identity`` from now on."""
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
    """Another instance has come and wants to end what is open: it has the identity ``following`` from now on."""
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
    """More partitions take part; the first begin the transaction."""
    return follow(
        transaction,
        state=TransactionState.ONGOING,
        partitions=transaction.partitions + added,
        start_ms=now_ms if transaction.state in AT_REST else transaction.start_ms,
        last_update_ms=now_ms,
        client_version=client_version,
    )


def needs_producer_id(transaction: Transaction, client_version: int) -> bool:
    """Whether the end of the transaction has to rotate the producer id."""
    return client_version >= TRANSACTIONS_V2 and is_exhausted(transaction.client_identity.producer_epoch)


def prepare(
    transaction: Transaction, *, committed: bool, client_version: int, new_producer_id: ProducerId, now_ms: int
) -> Transaction:
    """The transaction is decided. With Transactions V2 its epoch rises, and the markers already carry the new one.

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
    """The open transaction is aborted by a newer instance or by its time-out, under an epoch its client does not have.

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


def complete(transaction: Transaction, now_ms: int) -> Transaction:
    """All markers are written: the transaction is over, and the identity for the next one takes effect."""
    identity, following = transaction.identity, transaction.next_identity
    previous_producer_id = identity.producer_id
    if transaction.is_kept:
        # Who ended it named the next id; that is the one a retry will name.
        identity, previous_producer_id = following, transaction.previous_producer_id
    elif following.producer_id != NO_PRODUCER_ID:
        identity = Identity(following.producer_id, ProducerEpoch(0))
    committed = transaction.state is TransactionState.PREPARE_COMMIT
    return follow(
        transaction,
        state=TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT,
        identity=identity,
        previous_producer_id=previous_producer_id,
        next_identity=NO_IDENTITY,
        partitions=(),
        last_update_ms=now_ms,
    )


def value_version(transaction: Transaction, settings: TransactionSettings) -> int:
    """The version a record is written in: flexible when the cluster allows it (then a downgrade is possible), and
    where the fixed-width one could not say how the transaction goes on."""
    needs_tags = transaction.next_identity.producer_id != NO_PRODUCER_ID or (
        transaction.previous_producer_id not in (NO_PRODUCER_ID, transaction.identity.producer_id)
    )
    return 1 if settings.transaction_version >= FLEXIBLE_RECORDS or needs_tags else 0


def is_whole(value: bytes) -> bool:
    """Whether a record's value holds all of the transaction it was made of; one of version 0 lacks what has a tag."""
    return value[1] >= transaction_records.FLEXIBLE_SINCE


def record_of(transaction: Transaction, settings: TransactionSettings) -> Record:
    """The record that stores the transaction."""
    grouped: dict[TopicName, list[int]] = {}
    for topic, partition in transaction.partitions:
        grouped.setdefault(topic, []).append(partition)
    topics = tuple((topic, tuple(partitions)) for topic, partitions in grouped.items())
    value = TransactionValue(
        producer_id=transaction.identity.producer_id,
        producer_epoch=transaction.identity.producer_epoch,
        timeout_ms=transaction.timeout_ms,
        status=transaction.state,
        partitions=None if transaction.state is TransactionState.EMPTY else topics,
        last_update_timestamp=transaction.last_update_ms,
        start_timestamp=transaction.start_ms,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_identity.producer_id,
        client_transaction_version=transaction.client_version,
        next_producer_epoch=transaction.next_identity.producer_epoch,
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
