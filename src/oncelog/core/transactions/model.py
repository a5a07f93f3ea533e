"""Requests, replies and decisions of a transaction shard. Values only, no behaviour.

They are not the wire's messages (``core`` does not know ``wire``): the handlers translate, and know the versions.
Every reply can be made of an error code alone, which is how a request is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    CoordinatorEpoch,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
    TransactionalId,
)

FLEXIBLE_RECORDS: Final = 1
"""The level from which records are written with tagged fields."""


class Identity(NamedTuple):
    """A producer id with its epoch."""

    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH


NO_IDENTITY: Final = Identity()


class InitRequest(NamedTuple):
    """InitProducerId with a transactional id. ``expected`` is the identity the client has (version 3 and later)."""

    transactional_id: TransactionalId
    timeout_ms: int
    expected: Identity | None = None
    enable_two_phase_commit: bool = False
    keep_prepared: bool = False


class AddRequest(NamedTuple):
    """AddPartitionsToTxn or AddOffsetsToTxn of one transaction, with partitions that exist.

    ``client_version`` is 2 for batches that brokers send (version 4 and later), 0 for what clients send themselves.
    ``verify_only``: say whether the partitions take part, and add nothing.
    """

    transactional_id: TransactionalId
    identity: Identity
    partitions: Sequence[TopicPartition]
    client_version: int = 0
    verify_only: bool = False
    longest_wait_ms: int | None = None
    """The longest wait for the transaction before to complete, where the sender cannot be held up for as long as a
    client: a broker that asks for many."""


class EndRequest(NamedTuple):
    """EndTxn. ``client_version`` is 2 from version 5 on, 0 before."""

    transactional_id: TransactionalId
    identity: Identity
    committed: bool
    client_version: int = 0


class InitReply(NamedTuple):
    """Answer to InitProducerId; ``ongoing`` is the transaction that was kept (KIP-939)."""

    error_code: ErrorCode
    identity: Identity = NO_IDENTITY
    ongoing: Identity = NO_IDENTITY


class AddReply(NamedTuple):
    """Answer to AddPartitionsToTxn (for every partition alike) and AddOffsetsToTxn."""

    error_code: ErrorCode


class VerifyReply(NamedTuple):
    """Answer to a verify-only AddPartitionsToTxn: an error for all, or one a partition."""

    error_code: ErrorCode
    partitions: Mapping[TopicPartition, ErrorCode] = {}

    @property
    def take_part(self) -> bool:
        """True if all partitions of the request take part."""
        none = ErrorCode.NONE
        return self.error_code is none and all(error_code is none for error_code in self.partitions.values())


class EndReply(NamedTuple):
    """Answer to EndTxn: with Transactions V2 the identity to go on with."""

    error_code: ErrorCode
    identity: Identity = NO_IDENTITY


class NeedsProducerId(NamedTuple):
    """No answer yet: nothing has been changed; decide again with a new producer id (ids are durable before use)."""


class MarkersToWrite(NamedTuple):
    """Markers to send to the leaders of ``partitions`` once the decision's records are durable."""

    transactional_id: TransactionalId
    identity: Identity
    coordinator_epoch: CoordinatorEpoch
    committed: bool
    partitions: tuple[TopicPartition, ...]
    client_version: int
    """The transaction version in WriteTxnMarkers 2: from 2 on the epoch has to be greater than the producer's."""
    number: int
    """Tells these markers from those of the id's other transactions, which before V2 have the same identity."""


class TransactionDescription(NamedTuple):
    """A transaction in DescribeTransactions. The start time is −1 where none was begun."""

    transactional_id: TransactionalId
    state: str
    identity: Identity
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]


class TransactionListing(NamedTuple):
    """A transaction in ListTransactions."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    state: str


TransactionRequest = InitRequest | AddRequest | EndRequest
Reply = InitReply | AddReply | VerifyReply | EndReply | NeedsProducerId


def refusal_of(request: TransactionRequest, error_code: ErrorCode) -> Reply:
    if isinstance(request, InitRequest):
        return InitReply(error_code)
    if isinstance(request, EndRequest):
        return EndReply(error_code)
    return VerifyReply(error_code) if request.verify_only else AddReply(error_code)


Record = tuple[bytes, bytes | None]
"""Key and value of a record of ``__transaction_state``; no value is a tombstone."""


@dataclass(slots=True)
class TransactionDecision:
    """A shard's decision: append ``records`` as one batch, apply each; when they are durable deliver the replies and
    send the markers.

    ``reply`` goes to the caller's token; None parks it: a later decision's ``released`` names it.
    """

    records: list[Record] = field(default_factory=list)
    reply: Reply | None = None
    released: list[tuple[int, Reply]] = field(default_factory=list)
    markers: list[MarkersToWrite] = field(default_factory=list)
    shows: TransactionalId | None = None
    """The reply shows what earlier decisions applied to this id: deliver it not before *their* records are durable."""
    needs_producer_id: TransactionalId | None = None
    """Call ``abort_timed_out`` for this id with a new producer id."""
    transitions: list[TransactionalId] = field(default_factory=list)
    """Transactional ids whose state the records change, for ``TransactionShard.append_failed``."""
    parked: int | None = None
    """The token this decision parked although it has records, for ``TransactionShard.append_failed``…"""
    parked_by_tick: bool = False
    """…and whether nobody but the shard answers it, because it was not asked just now."""
