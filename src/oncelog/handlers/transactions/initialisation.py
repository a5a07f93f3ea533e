"""InitProducerId with a transactional id: what the coordinator decides, and the audit of a transaction that it ends."""

from __future__ import annotations

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_PRODUCER_ID, TRANSACTION_STATE, ProducerEpoch, ProducerId, TransactionalId
from oncelog.base.transaction_verdicts import NEVER_TIMES_OUT
from oncelog.core.transactions.decisions import init_error
from oncelog.core.transactions.identity import Identity
from oncelog.core.transactions.model import InitReply, InitRequest, TransactionDescription
from oncelog.core.transactions.states import STATE_NAMES, TransactionState
from oncelog.handlers.broker.audit import PARTITIONS_NAMED, AuditRecord, Value, requester
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps
from oncelog.handlers.topics.creation import ensure_internal_topic
from oncelog.handlers.transactions.requests import ask, remember_client
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest


def init_request(request: InitProducerIdRequest, transactional_id: str) -> InitRequest:
    expected = Identity(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch))
    return InitRequest(
        TransactionalId(transactional_id),
        request.transaction_timeout_ms,
        None if request.producer_id == NO_PRODUCER_ID else expected,
        request.enable2_pc,
        request.keep_prepared_txn,
    )


def initialised(request: InitRequest, context: Context) -> Steps[InitReply | ErrorCode]:
    """The coordinator's reply, or the error for the client."""
    yield from ensure_internal_topic(context.cluster, TRANSACTION_STATE)
    ended = None if request.keep_prepared else _open_transaction(request, context)
    reply: InitReply | ErrorCode = yield from ask(request)
    error_code = reply if isinstance(reply, ErrorCode) else reply.error_code
    if ended is not None:
        # A new instance cannot be told from an administrator who forces the end (Apache Kafka's
        # forceTerminateTransaction sends the same request): both are audited.
        context.transactions.audit(_record(ended, request, error_code, context))
    if isinstance(reply, ErrorCode):
        return reply
    remember_client(request.transactional_id, reply.error_code, context)
    if reply.error_code is not ErrorCode.NONE:
        return init_error(reply.error_code, context.version)
    return reply


def _open_transaction(request: InitRequest, context: Context) -> TransactionDescription | None:
    """The id's open transaction, which this request will abort."""
    shard = context.transactions.shard_of(request.transactional_id)
    transaction = None if shard is None else shard.describe(request.transactional_id)
    return (
        transaction if transaction is not None and transaction.state == STATE_NAMES[TransactionState.ONGOING] else None
    )


def _record(
    ended: TransactionDescription, request: InitRequest, error_code: ErrorCode, context: Context
) -> AuditRecord:
    transaction: dict[str, Value] = {
        "transactional_id": ended.transactional_id,
        "producer_id": ended.identity.producer_id,
        "producer_epoch": ended.identity.producer_epoch,
        "state": ended.state,
        "two_phase": ended.timeout_ms == NEVER_TIMES_OUT,
        "start_ms": ended.start_ms,
        "timeout_ms": ended.timeout_ms,
        "partitions": [str(partition) for partition in ended.partitions[:PARTITIONS_NAMED]],
        "partition_count": len(ended.partitions),
    }
    checked = ["Write on the transactional id"]
    if request.expected is not None:
        checked.append("the requester has the producer id and epoch of the transaction")
    return AuditRecord(context.now_ms, "init-producer-id", requester(context), transaction, checked, error_code.name)
