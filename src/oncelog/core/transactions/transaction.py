"""The state of one transactional id, as a value, and the invariants it keeps.

Epochs. The client may use epochs up to 32766 (``EXHAUSTED``); 32767 is kept so that the coordinator can always fence.
Where the next epoch would be 32767 a new producer id is needed (*rotation*): at once in InitProducerId, and at the end
of a transaction as the *next* producer id, which takes over at Complete, because the markers still carry the old one.
A *kept* transaction (InitProducerId with KeepPreparedTxn) is Ongoing under its own id and epoch, those the markers
need, and has the id and epoch of the instance that may end it as the next ones.
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
from oncelog.base.invariant import invariant
from oncelog.base.transaction_verdicts import NEVER_TIMES_OUT
from oncelog.core.transactions.model import (
    NO_IDENTITY,
    Identity,
)
from oncelog.core.transactions.states import AT_REST, PREPARED, TransactionState

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
    """Partitions of the transaction, in the order in which they were added."""
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    """The producer id before the last transition: recognises a retry across a rotation."""
    next_identity: Identity = NO_IDENTITY
    """Epoch −1 with an id: a rotation that takes effect, with epoch 0, at Complete."""
    client_version: int = 0
    """The transaction version of the client that made the last transition."""
    last_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    """The epoch before the last bump: recognises a retry. Gone after a restart, as in Apache Kafka."""

    @property
    def is_kept(self) -> bool:
        """True if another instance has taken over the open transaction (KIP-939)."""
        return self.next_identity.producer_epoch != NO_PRODUCER_EPOCH

    @property
    def client_identity(self) -> Identity:
        """The identity that the client has to name: the transaction's, or the next one if the transaction was kept."""
        return self.next_identity if self.is_kept else self.identity

    @property
    def deadline_ms(self) -> int | None:
        """The time from which on the transaction has timed out; None where it does not."""
        if self.state is not TransactionState.ONGOING or self.timeout_ms == NEVER_TIMES_OUT:
            return None
        return self.start_ms + self.timeout_ms + 1


def is_exhausted(epoch: ProducerEpoch) -> bool:
    """True if a client may use no higher epoch with its producer id."""
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
