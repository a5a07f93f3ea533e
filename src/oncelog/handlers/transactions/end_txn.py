"""EndTxn, versions 0 to 5 (KIP-98, KIP-890): commit or abort.

Answered when the decision is durable; markers follow. With version 5 (Transactions V2) every end raises the epoch, and
the response has the next producer id and epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import ProducerEpoch, ProducerId, TransactionalId
from oncelog.core.transactions.decisions import end_error
from oncelog.core.transactions.identity import Identity
from oncelog.core.transactions.model import EndReply, EndRequest
from oncelog.core.transactions.settings import TRANSACTIONS_V2
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps
from oncelog.handlers.transactions.requests import COORDINATOR_ERRORS, ask, remember_client
from oncelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.INVALID_REQUEST: "an empty transactional id",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the transactional id does not exist or has another producer id",
    ErrorCode.PRODUCER_FENCED: "the epoch is not the current one (version 2)",
    ErrorCode.INVALID_PRODUCER_EPOCH: "the same, told to clients that do not know the error",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the transaction before is still being completed; try again",
    ErrorCode.INVALID_TXN_STATE: "no transaction is open, it was ended the other way, or the request is late",
}

_V2_SINCE: Final = 5


def handle(request: EndTxnRequest, context: Context) -> Steps[EndTxnResponse]:
    if not context.allows_transactional_id(Operation.WRITE, request.transactional_id):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    ended = EndRequest(
        TransactionalId(request.transactional_id),
        Identity(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)),
        request.committed,
        TRANSACTIONS_V2 if context.version >= _V2_SINCE else 0,
        context.connection_id,
    )
    reply: EndReply | ErrorCode = yield from ask(ended)
    if isinstance(reply, ErrorCode):
        return EndTxnResponse(error_code=reply)
    remember_client(ended.transactional_id, reply.error_code, context)
    return EndTxnResponse(
        error_code=end_error(reply.error_code, context.version),
        producer_id=reply.identity.producer_id,
        producer_epoch=reply.identity.producer_epoch,
    )
