"""DescribeTransactions, version 0 (KIP-664): what the coordinator knows of transactional ids.

Of a transaction that is decided the partitions are those whose marker is outstanding, as in Apache Kafka. Topics that
the requester may not describe are left out.

What is told is durable, or it waits: whoever acts on "complete" (an administrator does) must not find it undone by a
power failure. And it waits until it is certain that nobody coordinates the ids in this broker's place: one that was
replaced and has not heard of it would have a live transaction's partitions wrong, and the transaction called hanging.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition, TransactionalId
from oncelog.handlers.api import Operation
from oncelog.handlers.broker.broker_clients import is_trusted_broker
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps, UntilConfirmed, UntilDurable
from oncelog.handlers.transactions.requests import COORDINATOR_ERRORS, by_topic
from oncelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.INVALID_REQUEST: "an empty transactional id",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "the coordinator does not know the transactional id",
}

_UNCONFIRMED: Final = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
_FEW: Final = 100


def handle(request: DescribeTransactionsRequest, context: Context) -> Steps[DescribeTransactionsResponse]:
    """Every id named, in order; of many each is answered once: its transaction can be large."""
    names = [TransactionalId(name) for name in _once(request.transactional_ids)]
    response = DescribeTransactionsResponse(transaction_states=[_describe(name, context) for name in names])
    asked_ms = context.now_ms
    late = yield from _not_durable(response, asked_ms, context)
    unconfirmed = yield from _unconfirmed(response, asked_ms, context)
    for index, state in enumerate(response.transaction_states):
        kept_in = context.transactions.partition_of(TransactionalId(state.transactional_id))
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE if kept_in in late else unconfirmed.get(kept_in)
        if error is not None and _is_told(state):
            refused = TransactionState(transactional_id=state.transactional_id, error_code=error)
            response.transaction_states[index] = refused
    return response


def _is_told(state: TransactionState) -> bool:
    return state.error_code in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


def _not_durable(response: DescribeTransactionsResponse, asked_ms: int, context: Context) -> Steps[set[TopicPartition]]:
    """The partitions of coordinators whose word is not durable within ``request.timeout.ms``."""
    known = [state for state in response.transaction_states if state.error_code == ErrorCode.NONE]
    ends = context.transactions.durable_at(TransactionalId(state.transactional_id) for state in known)
    if not ends:
        return set()
    late: set[TopicPartition] = yield UntilDurable(ends, asked_ms + context.cluster.config.get("request.timeout.ms"))
    return late


def _unconfirmed(
    response: DescribeTransactionsResponse, asked_ms: int, context: Context
) -> Steps[Mapping[TopicPartition | None, ErrorCode]]:
    """The errors of coordinators that may have been replaced, by the partition that they lead."""
    told = [TransactionalId(state.transactional_id) for state in response.transaction_states if _is_told(state)]
    found = {context.transactions.partition_of(name): None for name in told}
    partitions = [each for each in found if each is not None]
    if not partitions:
        return {}
    deadline_ms = asked_ms + context.cluster.config.get("oncelog.transaction.wait.ms")
    errors: Mapping[TopicPartition, ErrorCode] = yield UntilConfirmed(partitions, deadline_ms)
    return {partition: _UNCONFIRMED[error] for partition, error in errors.items()}


def _once(names: list[str]) -> list[str]:
    return names if len(names) <= _FEW else list(dict.fromkeys(names))


def _describe(transactional_id: TransactionalId, context: Context) -> TransactionState:
    answer = TransactionState(transactional_id=transactional_id)
    answer.error_code = _refusal(transactional_id, context)
    shard = context.transactions.shard_of(transactional_id) if answer.error_code == ErrorCode.NONE else None
    if shard is None:
        return answer
    described = shard.describe(transactional_id)
    if described is None:
        answer.error_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return answer
    answer.transaction_state = described.state
    answer.transaction_timeout_ms = described.timeout_ms
    answer.transaction_start_time_ms = described.start_ms
    answer.producer_id, answer.producer_epoch = described.identity
    partitions = shard.outstanding(transactional_id) or described.partitions
    answer.topics = [
        TopicData(topic=topic, partitions=indexes)
        for topic, indexes in by_topic(partitions).items()
        if is_trusted_broker(context) or context.would_allow_topic(Operation.DESCRIBE, topic)
    ]
    return answer


def _refusal(transactional_id: TransactionalId, context: Context) -> ErrorCode:
    if not (is_trusted_broker(context) or context.allows_transactional_id(Operation.DESCRIBE, transactional_id)):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    return context.transactions.refusal(transactional_id)
