"""InitProducerId, versions 0 to 6 (KIP-98, KIP-360, KIP-588, KIP-939): a producer id and its epoch.

Without a transactional id a producer always gets a new id with epoch 0. With one the transaction coordinator aborts an
open transaction and fences earlier instances, or with ``KeepPreparedTxn`` leaves the transaction to the new instance
and returns it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerId
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps, UntilProducerId
from oncelog.handlers.transactions.requests import COORDINATOR_ERRORS
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.INVALID_REQUEST: "a producer id without an epoch or the reverse, or an empty transactional id",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "the transaction's time-out is not above 0, or above the limit",
    ErrorCode.PRODUCER_FENCED: "a newer instance has the transactional id (version 4)",
    ErrorCode.INVALID_PRODUCER_EPOCH: "the same, told to clients that do not know the error",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the transaction before is still being completed; try again",
    ErrorCode.UNSUPPORTED_VERSION: "KeepPreparedTxn while two-phase commit is not enabled",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to write idempotently",
}


def handle(request: InitProducerIdRequest, context: Context) -> Steps[InitProducerIdResponse]:
    transactional_id = request.transactional_id
    if transactional_id is None:
        if not _may_write(context):
            return _refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    elif not _may_transact(request, transactional_id, context):
        return _refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _refuse(ErrorCode.INVALID_REQUEST)
    if transactional_id is None:
        return (yield from _new_id())
    if transactional_id == "":
        return _refuse(ErrorCode.INVALID_REQUEST)
    return (yield from _initialise(request, transactional_id, context))


def _may_write(context: Context) -> bool:
    """True for a requester with IdempotentWrite, or with Write on some topic (KIP-679)."""
    if context.allows_cluster_silently(Operation.IDEMPOTENT_WRITE) or context.allows_any(
        Operation.WRITE, ResourceType.TOPIC
    ):
        return True
    return context.allows_cluster(Operation.IDEMPOTENT_WRITE)  # called for its log entry


def _may_transact(request: InitProducerIdRequest, transactional_id: str, context: Context) -> bool:
    return context.allows_transactional_id(Operation.WRITE, transactional_id) and (
        # A transaction without a timeout can block readers for ever: it needs a right of its own.
        not request.enable2_pc or context.allows_transactional_id(Operation.TWO_PHASE_COMMIT, transactional_id)
    )


def _new_id() -> Steps[InitProducerIdResponse]:
    producer_id: ProducerId | None = yield UntilProducerId()
    if producer_id is None:
        return _refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _initialise(
    request: InitProducerIdRequest, transactional_id: str, context: Context
) -> Steps[InitProducerIdResponse]:
    # A first idempotent record needs none of the transactions' modules (`python -m bench start-cpython`).
    from oncelog.handlers.transactions.initialisation import init_request, initialised

    reply = yield from initialised(init_request(request, transactional_id), context)
    if isinstance(reply, ErrorCode):
        return _refuse(reply)
    return InitProducerIdResponse(
        producer_id=reply.identity.producer_id,
        producer_epoch=reply.identity.producer_epoch,
        ongoing_txn_producer_id=reply.ongoing.producer_id,
        ongoing_txn_producer_epoch=reply.ongoing.producer_epoch,
    )


def _refuse(error_code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error_code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
