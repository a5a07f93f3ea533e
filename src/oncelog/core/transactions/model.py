"""Requests, replies and decisions of a transaction shard; values without behaviour.

Handlers translate wire messages, which ``core`` does not import, and know the versions. Every reply can be made from an
error code alone: so a request is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CoordinatorEpoch, ProducerId, TopicPartition, TransactionalId
from oncelog.core.transactions.identity import NO_IDENTITY, Identity

FLEXIBLE_RECORDS: Final = 1
"""The level from which records have tagged fields."""


class InitRequest(NamedTuple):
    """InitProducerId with a transactional id. ``expected`` is the client's identity (from version 3)."""

    transactional_id: TransactionalId
    timeout_ms: int
    expected: Identity | None = None
    enable_two_phase_commit: bool = False
    keep_prepared: bool = False


class AddRequest(NamedTuple):
    """AddPartitionsToTxn or AddOffsetsToTxn of one transaction, for existing partitions.

    ``client_version`` is 2 for batches from brokers (from version 4), 0 for clients. ``verify_only``: check, add
    nothing.
    """

    transactional_id: TransactionalId
    identity: Identity
    partitions: Sequence[TopicPartition]
    client_version: int = 0
    verify_only: bool = False
    longest_wait_ms: int | None = None
    """The maximum wait for the previous transaction to complete, for a sender that cannot wait as long as a client: a
    broker that asks for many.
    """
    connection_id: int | None = None  # rises from connection to connection; None for brokers


class EndRequest(NamedTuple):
    """EndTxn. ``client_version`` is 2 from version 5, 0 before."""

    transactional_id: TransactionalId
    identity: Identity
    committed: bool
    client_version: int = 0
    connection_id: int | None = None


class InitReply(NamedTuple):
    """``ongoing`` is the kept transaction (KIP-939)."""

    error_code: ErrorCode
    identity: Identity = NO_IDENTITY
    ongoing: Identity = NO_IDENTITY


class AddReply(NamedTuple):
    """The reply to AddPartitionsToTxn (the same for every partition) and AddOffsetsToTxn."""

    error_code: ErrorCode


class VerifyReply(NamedTuple):
    """The reply to a verify-only AddPartitionsToTxn: one error for all, or one per partition."""

    error_code: ErrorCode
    partitions: Mapping[TopicPartition, ErrorCode] = {}

    @property
    def take_part(self) -> bool:
        """True if all requested partitions are in the transaction."""
        none = ErrorCode.NONE
        return self.error_code is none and all(error_code is none for error_code in self.partitions.values())


class EndReply(NamedTuple):
    """With Transactions V2 it has the client's next identity."""

    error_code: ErrorCode
    identity: Identity = NO_IDENTITY


class NeedsProducerId(NamedTuple):
    """Nothing was changed: decide again with a new producer id. (Ids are durable before use.)"""


class MarkersToWrite(NamedTuple):
    """Markers to send to the leaders of ``partitions`` once the decision's records are durable."""

    transactional_id: TransactionalId
    identity: Identity
    coordinator_epoch: CoordinatorEpoch
    committed: bool
    partitions: tuple[TopicPartition, ...]
    client_version: int
    """The transaction version in WriteTxnMarkers 2: from 2 the epoch must be greater than the producer's."""
    number: int
    """Tells these markers from those of the id's other transactions, which before V2 have the same identity."""


class TransactionDescription(NamedTuple):
    """A transaction in DescribeTransactions. The start time is −1 if none has begun."""

    transactional_id: TransactionalId
    state: str
    identity: Identity
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]
    client: tuple[str, str] | None = None  # client id and host, as far as this coordinator remembers


class TransactionListing(NamedTuple):
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
"""Key and value of a ``__transaction_state`` record; None is a tombstone."""


@dataclass(slots=True)
class TransactionDecision:
    """A shard's decision: append ``records`` as one batch and apply each; once they are durable deliver the replies and
    send the markers. ``reply`` None parks the caller's token until a later decision's ``released``."""

    records: list[Record] = field(default_factory=list)
    reply: Reply | None = None
    released: list[tuple[int, Reply]] = field(default_factory=list)
    markers: list[MarkersToWrite] = field(default_factory=list)
    shows: TransactionalId | None = None
    """The reply shows the effect of earlier decisions on this id: deliver it only once *their* records are durable."""
    needs_producer_id: TransactionalId | None = None
    """Call ``abort_timed_out`` for this id with a new producer id."""
    transitions: list[TransactionalId] = field(default_factory=list)
    """Transactional ids whose state the records change, for ``TransactionShard.append_failed``."""
    parked: int | None = None
    """The token that this decision parked although it has records, for ``TransactionShard.append_failed``."""
    times_out: bool = False
    """True if a transaction is aborted after its time-out."""
    parked_by_tick: bool = False
    """True if ``tick`` parked it again, so that only the shard can answer it."""
