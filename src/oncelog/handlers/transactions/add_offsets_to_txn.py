"""AddOffsetsToTxn, versions 0 to 4 (KIP-98): a group's offsets take part in a transaction.

To the coordinator the partition of ``__consumer_offsets`` that keeps the group is a partition like any other. Clients
with Transactions V2 do not ask: TxnOffsetCommit adds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import CONSUMER_OFFSETS, ProducerEpoch, ProducerId, TopicPartition, TransactionalId
from oncelog.core.transactions.decisions import add_error
from oncelog.core.transactions.model import AddReply, AddRequest, Identity
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps
from oncelog.handlers.topics.creation import ensure_internal_topic
from oncelog.handlers.transactions.requests import COORDINATOR_ERRORS, ask
from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.INVALID_REQUEST: "an empty transactional id",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the transactional id does not exist or has another producer id",
    ErrorCode.PRODUCER_FENCED: "the epoch is not the current one (version 2)",
    ErrorCode.INVALID_PRODUCER_EPOCH: "the same, told to clients that do not know the error",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the transaction before is still being completed; try again",
    ErrorCode.INVALID_TXN_STATE: "the transaction was prepared and is only to be ended",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not allowed to read the group",
}


def handle(request: AddOffsetsToTxnRequest, context: Context) -> Steps[AddOffsetsToTxnResponse]:
    """Add the partition that keeps the group's offsets."""
    if not context.allows_transactional_id(Operation.WRITE, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.allows_group(Operation.READ, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    return (yield from _add(request, context))


def _add(request: AddOffsetsToTxnRequest, context: Context) -> Steps[AddOffsetsToTxnResponse]:
    cluster = context.cluster
    created = yield from ensure_internal_topic(cluster, CONSUMER_OFFSETS)
    if created is not ErrorCode.NONE:
        return AddOffsetsToTxnResponse(error_code=created)
    count = len(cluster.image.topics[CONSUMER_OFFSETS].partitions)
    added = AddRequest(
        TransactionalId(request.transactional_id),
        Identity(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)),
        [TopicPartition(CONSUMER_OFFSETS, coordinator_partition(request.group_id, count))],
    )
    reply: AddReply | ErrorCode = yield from ask(added)
    error_code = reply if isinstance(reply, ErrorCode) else reply.error_code
    return AddOffsetsToTxnResponse(error_code=add_error(error_code, context.version))
