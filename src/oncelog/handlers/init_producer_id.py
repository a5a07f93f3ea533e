"""InitProducerId, versions 0 to 5 (KIP-98, KIP-360): a producer id for an idempotent producer.

Without a transactional id a producer always gets a new id with epoch 0, also when it names the one it had. With one it
would be the transaction coordinator's to answer, which no broker has yet: COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerId
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.context import Context
from oncelog.handlers.facts import may_cluster, may_topic
from oncelog.handlers.waits import Steps, UntilProducerId
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.INVALID_REQUEST: "a producer id without an epoch or the reverse, or an empty transactional id",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "no block of producer ids could be had in time; try again",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "the transaction's time-out is not above 0, or above the limit",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "transactional ids are not served yet",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not allowed to use the transactional id",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed to write idempotently",
}


def handle(request: InitProducerIdRequest, context: Context) -> InitProducerIdResponse | Steps[InitProducerIdResponse]:
    """Give a new id, or say why not."""
    transactional_id = request.transactional_id
    if transactional_id is None:
        if not _may_write(context):
            return _refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    elif not context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return _refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _refuse(ErrorCode.INVALID_REQUEST)
    if transactional_id is None:
        return _new_id()
    if transactional_id == "":
        return _refuse(ErrorCode.INVALID_REQUEST)
    if not 0 < request.transaction_timeout_ms <= context.broker.config.get("transaction.max.timeout.ms"):
        return _refuse(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    return _refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _may_write(context: Context) -> bool:
    """Idempotent writing is allowed to whom it is given, and to everyone who may write to some topic."""
    return may_cluster(context, Operation.IDEMPOTENT_WRITE) or any(
        may_topic(context, Operation.WRITE, topic) for topic in context.broker.image.topics
    )


def _new_id() -> Steps[InitProducerIdResponse]:
    producer_id: ProducerId | None = yield UntilProducerId()
    if producer_id is None:
        return _refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refuse(error_code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error_code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
