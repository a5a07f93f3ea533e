"""Queries about transactional ids to their coordinators.

DescribeTransactions, version 0 (KIP-664). A decided transaction's partitions are those without a marker yet, as in
Apache Kafka; topics that the requester may not describe are left out. Answers wait until they are durable: an
administrator acts on "complete", which a power failure must not undo. They also wait for proof that no other broker
coordinates the ids: an unaware former coordinator would list the wrong partitions, and a live transaction would be
called hanging.

ListTransactions, versions 0 to 2 (KIP-664, KIP-994, KIP-1152): the ids coordinated here that the requester may
describe. Filters by state, producer id, duration (1) and a pattern (2) that has to match the whole id, which a worker
matches within the bounds of ``records.patterns``. Unknown states are returned. Other brokers' tags are those of
``node.brokers.requests.listings``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TRANSACTION_STATE, ProducerId, TopicPartition, TransactionalId, by_topic
from oncelog.core.transactions.states import state_named
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.broker.broker_clients import is_trusted_broker
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Lane, NextSlice, Offload, Steps, UntilConfirmed, UntilDurable
from oncelog.handlers.transactions.requests import COORDINATOR_ERRORS
from oncelog.records.patterns import Pattern, PatternRefused
from oncelog.wire.messages import list_transactions as listed
from oncelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from oncelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from oncelog.core.transactions.model import TransactionListing
    from oncelog.core.transactions.shard import TransactionShard


DESCRIBE_ERRORS: Final[Mapping[ErrorCode, str]] = {
    **COORDINATOR_ERRORS,
    ErrorCode.INVALID_REQUEST: "an empty transactional id",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "the coordinator does not know the transactional id",
}

_UNCONFIRMED: Final = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
_FEW: Final = 100


def describe(request: DescribeTransactionsRequest, context: Context) -> Steps[DescribeTransactionsResponse]:
    names = [TransactionalId(name) for name in _once(request.transactional_ids)]
    response = DescribeTransactionsResponse(transaction_states=[_describe(name, context) for name in names])
    asked_ms = context.now_ms
    late = yield from _not_durable(response, asked_ms, context)
    unconfirmed = yield from _unconfirmed(response, asked_ms, context)
    for index, state in enumerate(response.transaction_states):
        kept_in = context.transactions.partition_of(TransactionalId(state.transactional_id))
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE if kept_in in late else unconfirmed.get(kept_in)
        if error is not None and _has_result(state):
            refused = TransactionState(transactional_id=state.transactional_id, error_code=error)
            response.transaction_states[index] = refused
    return response


def _has_result(state: TransactionState) -> bool:
    return state.error_code in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


def _not_durable(response: DescribeTransactionsResponse, asked_ms: int, context: Context) -> Steps[set[TopicPartition]]:
    """The partitions of coordinators whose state is not durable within ``request.timeout.ms``."""
    described = [state for state in response.transaction_states if state.error_code == ErrorCode.NONE]
    ends = context.transactions.offsets_until_durable(TransactionalId(state.transactional_id) for state in described)
    if not ends:
        return set()
    late: set[TopicPartition] = yield UntilDurable(ends, asked_ms + context.cluster.config.get("request.timeout.ms"))
    return late


def _unconfirmed(
    response: DescribeTransactionsResponse, asked_ms: int, context: Context
) -> Steps[Mapping[TopicPartition | None, ErrorCode]]:
    """The errors of coordinators that may have been replaced, by the partition that they lead."""
    ids = [TransactionalId(state.transactional_id) for state in response.transaction_states if _has_result(state)]
    coordinating = {context.transactions.partition_of(name): None for name in ids}
    partitions = [partition for partition in coordinating if partition is not None]
    if not partitions:
        return {}
    deadline_ms = asked_ms + context.cluster.config.get("oncelog.transaction.wait.ms")
    errors: Mapping[TopicPartition, ErrorCode] = yield UntilConfirmed(partitions, deadline_ms)
    return {partition: _UNCONFIRMED[error] for partition, error in errors.items()}


def _once(names: list[str]) -> list[str]:
    # Of many ids each is answered once: a transaction can be large.
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
    if described.client is not None:
        answer.client_id, answer.client_host = described.client
    partitions = shard.outstanding(transactional_id) or described.partitions
    answer.topics = [
        TopicData(topic=topic, partitions=indexes)
        for topic, indexes in by_topic(partitions).items()
        if is_trusted_broker(context) or context.allows_topic_silently(Operation.DESCRIBE, topic)
    ]
    return answer


def _refusal(transactional_id: TransactionalId, context: Context) -> ErrorCode:
    if not (is_trusted_broker(context) or context.allows_transactional_id(Operation.DESCRIBE, transactional_id)):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    return context.transactions.refusal(transactional_id)


LIST_TRANSACTIONS_ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "a part of the transactions is still being read from the log; try again",
    ErrorCode.NOT_COORDINATOR: "(broker) other partitions of __transaction_state are led here than the broker believes",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the pattern is not one of RE2, or is too large (version 2)",
}

_MANY: Final = 5000
_WORK_PER_SLICE: Final = 2_000_000
"""Bytes of ids times instructions of the pattern: at most 10 ms, after which a disconnect stops the work."""


def list_transactions(request: ListTransactionsRequest, context: Context) -> Steps[ListTransactionsResponse]:
    """None while some are still being loaded."""
    shards = list(context.transactions.shards())
    topic = context.cluster.image.topics.get(TRANSACTION_STATE)
    led = 0 if topic is None else sum(partition.leader == context.cluster.broker_id for partition in topic.partitions)
    if len(shards) < led:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    if not _are_led(request, shards):
        return ListTransactionsResponse(error_code=ErrorCode.NOT_COORDINATOR)
    pattern: Pattern | None = None
    if request.transactional_id_pattern:
        pattern = yield Offload(_compiled(request.transactional_id_pattern), Lane.PATTERNS, ends_with_client=True)
        if pattern is None:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    named = {name: state_named(name) for name in request.state_filters}
    states = {state for state in named.values() if state is not None} if named else None
    producer_ids = {ProducerId(producer_id) for producer_id in request.producer_id_filters} or None
    response = ListTransactionsResponse(unknown_state_filters=[name for name, state in named.items() if state is None])

    in_slices = sum(shard.id_count() for shard in shards) > _MANY
    listings: list[TransactionListing] = []
    for shard in shards:
        if in_slices:
            yield NextSlice()  # a million ids at once take a second
        if not shard.is_loaded:  # it moved to another broker
            return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        listings += shard.listings(
            context.now_ms, states=states, producer_ids=producer_ids, longer_than_ms=request.duration_filter
        )
        if len(listings) >= _MANY or shard is shards[-1]:
            if pattern is not None and listings:
                listings = yield Offload(_matching(pattern, listings), Lane.PATTERNS, ends_with_client=True)
            response.transaction_states += _visible(listings, context)
            listings = []
    return response


def _visible(listings: Sequence[TransactionListing], context: Context) -> list[listed.TransactionState]:
    sees_all = is_trusted_broker(context)
    return [
        listed.TransactionState(
            transactional_id=listing.transactional_id, producer_id=listing.producer_id, transaction_state=listing.state
        )
        for listing in listings
        if sees_all
        or context.allows_silently(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, listing.transactional_id)
    ]


def _compiled(text: str) -> Generator[None, None, Pattern | None]:
    yield
    try:
        return Pattern(text)
    except PatternRefused:
        return None


def _matching(
    pattern: Pattern, listings: Sequence[TransactionListing]
) -> Generator[None, None, list[TransactionListing]]:
    matching, work = [], 0
    for listing in listings:
        if pattern.matches(listing.transactional_id):
            matching.append(listing)
        work += len(listing.transactional_id) * pattern.program_size
        if work >= _WORK_PER_SLICE:
            work = 0
            yield
    return matching


def _are_led(request: ListTransactionsRequest, shards: Sequence[TransactionShard]) -> bool:
    """True if this broker leads the partitions that the requester believes, in those epochs."""
    led = {shard.partition: int(shard.coordinator_epoch) for shard in shards}
    believed = zip(request.led_partitions, request.leader_epochs, strict=False)
    return all(led.get(partition) == leader_epoch for partition, leader_epoch in believed)
