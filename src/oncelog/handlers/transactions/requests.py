"""Helpers of the transaction handlers: call the coordinator, list a request's partitions. Not an API.

The id's shard decides; handlers translate between wire versions and the state machine's values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_PRODUCER_ID, ProducerId, TopicName, TopicPartition, TransactionalId
from oncelog.handlers.broker.context import Context, CoordinatorRefusal
from oncelog.handlers.broker.waits import Steps, Transact, UntilProducerId

if TYPE_CHECKING:
    from oncelog.core.transactions.model import TransactionRequest

COORDINATOR_ERRORS: Final = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the coordinator's log did not take the records in time",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is reading its log, or has no producer id yet; try again",
    ErrorCode.NOT_COORDINATOR: "another broker coordinates the transactional id, or none does",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not allowed to use the transactional id",
}
"""The errors of every API that a transaction coordinator decides."""


class _Topic(Protocol):
    name: str
    partitions: list[int]


def ask(request: TransactionRequest) -> Steps[Any]:
    """The shard's reply, or the ErrorCode for which it cannot decide now."""
    # Not at the start of the module: an idempotent producer without transactions needs no more of it than its errors.
    from oncelog.core.transactions.model import NeedsProducerId

    producer_id: ProducerId = NO_PRODUCER_ID
    while True:
        try:
            reply = yield Transact(request, producer_id)
        except CoordinatorRefusal as refusal:
            return refusal.error_code
        if not isinstance(reply, NeedsProducerId):
            return reply
        # The decision needs a new id, which is durable before it is used.
        if producer_id == NO_PRODUCER_ID:
            new_id: ProducerId | None = yield UntilProducerId()
            if new_id is None:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            producer_id = new_id


def remember_client(transactional_id: TransactionalId, error_code: ErrorCode, context: Context) -> None:
    # DescribeTransactions shows it.
    shard = context.transactions.shard_of(transactional_id) if error_code is ErrorCode.NONE else None
    if shard is not None:
        shard.clients.remember(transactional_id, context.client_id or "", context.client_host)


def partitions_of(topics: Sequence[_Topic]) -> list[TopicPartition]:
    named = (TopicPartition(TopicName(topic.name), index) for topic in topics for index in topic.partitions)
    return list(dict.fromkeys(named))
