"""What a transactional produce needs before its append: that the partition is part of the transaction (KIP-890).

Without this a late batch could open a transaction that nobody ends. Clients of Transactions V1 have added the partition
beforehand, and the coordinator is asked whether they did. From Produce 12 on (V2) the produce itself adds it, and waits
until that is durable.

Where the coordinator is this broker and knows of the partition durably, as it nearly always does by then, its word is
taken in the step of the append and nothing is waited for. Otherwise it is asked. Against the race of its answer with an
abort a partition's log has a guard (``core.producers.verification``): a marker that was
written since the coordinator was asked makes its answer worthless, wherever the coordinator is. Where it is this broker
its word is also taken anew with the append, which tells the client more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import ProducerEpoch, ProducerId, TopicPartition, TransactionalId
from oncelog.core.transactions.model import AddReply, AddRequest, Decision, Identity, VerifyReply
from oncelog.handlers.support.context import Context, CoordinatorRefusal
from oncelog.handlers.support.waits import Steps, Transact
from oncelog.records.batch import CorruptBatch, read_header

if TYPE_CHECKING:
    from oncelog.core.transactions.shard import TransactionShard

KNOWS_TRANSACTION_ABORTABLE: Final = 11
ADDS_PARTITIONS: Final = 12

_RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Answered as NOT_ENOUGH_REPLICAS: older clients retry that without asking for metadata."""


def identity_of(records: memoryview) -> Identity | None:
    """The producer of a transactional batch; None where there is none, or no batch that reads."""
    try:
        header = read_header(records)
    except CorruptBatch:
        return None
    if not header.is_transactional or header.producer_id < 0:
        return None
    return Identity(ProducerId(header.producer_id), ProducerEpoch(header.producer_epoch))


def known(transactional_id: str, transactional: Mapping[TopicPartition, Identity], context: Context) -> bool:
    """Whether the coordinator need not be asked: it is here, and says at once that all partitions take part."""
    if context.version >= ADDS_PARTITIONS:
        return False
    first, *others = set(transactional.values())
    if others:
        return False
    return context.broker.take_part(AddRequest(TransactionalId(transactional_id), first, list(transactional), 0))


def verify(
    transactional_id: str, identity: Identity, partitions: Sequence[TopicPartition], context: Context
) -> Steps[Mapping[TopicPartition, ErrorCode]]:
    """Partitions that may not be appended to, with what to answer. The caller appends to the others at once."""
    adds = context.version >= ADDS_PARTITIONS
    if not adds and not context.broker.config.get("transaction.partition.verification.enable"):
        return {}
    request = AddRequest(TransactionalId(transactional_id), identity, partitions, 2 if adds else 0)
    error_code = yield from _ask(request, adds=adds)
    if error_code is not ErrorCode.NONE:
        refused: Mapping[TopicPartition, ErrorCode] = dict.fromkeys(partitions, _told(error_code, context.version))
    else:
        refused = _refused(request, context)
    if refused:
        context.broker.verification_failed(len(refused))
    return refused


def _ask(request: AddRequest, *, adds: bool) -> Steps[ErrorCode]:
    """Add the partitions, or see that they were added; durably, or a crash could leave a transaction nobody ends."""

    def decide(shard: TransactionShard, token: int, now_ms: int) -> Decision:
        return (shard.add_partitions if adds else shard.verify_partitions)(request, token, now_ms)

    try:
        reply: AddReply | VerifyReply = yield Transact(request.transactional_id, decide)
    except CoordinatorRefusal as refusal:
        return refusal.error_code
    return reply.error_code


def _refused(request: AddRequest, context: Context) -> Mapping[TopicPartition, ErrorCode]:
    shard = context.broker.transaction_shard(request.transactional_id)
    if shard is None:  # it is not this broker, or not any more: the guards in the logs have to do
        return {}
    reply = cast("VerifyReply", shard.verify_partitions(request, 0, context.now_ms).reply)
    if reply.error_code is not ErrorCode.NONE:
        return dict.fromkeys(request.partitions, _told(reply.error_code, context.version))
    found = reply.partitions.items()
    return {p: _told(error, context.version) for p, error in found if error is not ErrorCode.NONE}


def _told(error_code: ErrorCode, version: int) -> ErrorCode:
    """What a producer is told, by what its version knows."""
    if error_code in _RETRIABLE:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if error_code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_PARTITIONS:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if error_code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error_code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE):
        return abortable(version)
    return error_code


def abortable(version: int) -> ErrorCode:
    """The transaction cannot go on, in the words that the version knows."""
    known = version >= KNOWS_TRANSACTION_ABORTABLE
    return ErrorCode.TRANSACTION_ABORTABLE if known else ErrorCode.INVALID_TXN_STATE
