"""ListTransactions, versions 0 to 2 (KIP-664, KIP-994, KIP-1152): the transactional ids this broker coordinates.

Filters by state, producer id, duration (1) and a pattern (2) that the whole id has to match. States are named exactly;
those that do not exist come back. A pattern is RE2's, whose time is linear in the text: clients send it. One sees the
ids one may describe.

A broker that waits for markers (``node.broker_requests.awaited_markers``) names in tags of ours the partitions of
``__transaction_state`` that it believes this one to lead, with their epochs; it is answered only if that is so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TRANSACTION_STATE, ProducerId
from oncelog.core.transactions.states import state_named
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.support.broker_clients import is_trusted_broker
from oncelog.handlers.support.context import Context
from oncelog.handlers.support.waits import NextSlice, Steps
from oncelog.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from oncelog.core.transactions.shard import TransactionShard

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "a part of the transactions is still being read from the log; try again",
    ErrorCode.NOT_COORDINATOR: "(broker) other partitions of the transactions are led here than the broker believes",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the pattern is not one of RE2, or is too large (version 2)",
}

_MANY: Final = 5000
MAX_PROGRAM: Final = 5000
"""Instructions a pattern may compile to: a match takes microseconds up to there, and a tenth of a second far beyond."""


def handle(request: ListTransactionsRequest, context: Context) -> Steps[ListTransactionsResponse]:
    """List the transactions that filters and authoriser let through; none while some are still being loaded."""
    shards = list(context.transactions.shards())
    topic = context.cluster.image.topics.get(TRANSACTION_STATE)
    led = 0 if topic is None else sum(partition.leader == context.cluster.broker_id for partition in topic.partitions)
    if len(shards) < led:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    if not _are_led(request, shards):
        return ListTransactionsResponse(error_code=ErrorCode.NOT_COORDINATOR)
    matches = _matcher(request.transactional_id_pattern)
    if matches is None:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    named = {name: state_named(name) for name in request.state_filters}
    states = {state for state in named.values() if state is not None} if named else None
    producer_ids = {ProducerId(producer_id) for producer_id in request.producer_id_filters} or None
    response = ListTransactionsResponse(unknown_state_filters=[name for name, state in named.items() if state is None])

    sees_all = is_trusted_broker(context)

    def list_in(shard: TransactionShard) -> None:
        response.transaction_states += [
            TransactionState(
                transactional_id=listed.transactional_id,
                producer_id=listed.producer_id,
                transaction_state=listed.state,
            )
            for listed in shard.listings(
                context.now_ms, states=states, producer_ids=producer_ids, longer_than_ms=request.duration_filter
            )
            if matches(listed.transactional_id)
            and (
                sees_all
                or context.would_allow(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, listed.transactional_id)
            )
        ]

    if sum(shard.id_count() for shard in shards) > _MANY:
        return (yield from _in_slices(shards, list_in, response))
    for shard in shards:
        list_in(shard)
    return response


def _are_led(request: ListTransactionsRequest, shards: Sequence[TransactionShard]) -> bool:
    """True if this broker leads all that the requester believes, in the epochs it believes."""
    led = {shard.partition: int(shard.coordinator_epoch) for shard in shards}
    believed = zip(request.led_partitions, request.leader_epochs, strict=False)
    return all(led.get(partition) == leader_epoch for partition, leader_epoch in believed)


def _in_slices(
    shards: Sequence[TransactionShard],
    list_in: Callable[[TransactionShard], None],
    response: ListTransactionsResponse,
) -> Steps[ListTransactionsResponse]:
    """Shard by shard: a million ids in one go would keep others waiting for a second."""
    for shard in shards:
        yield NextSlice()
        if not shard.is_loaded:  # it has become another broker's
            return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        list_in(shard)
    return response


def _matcher(pattern: str | None) -> Callable[[str], bool] | None:
    """Says whether an id matches as a whole; None when the pattern is no pattern."""
    if not pattern:
        return lambda transactional_id: True
    import re2  # type: ignore[import-untyped]  # no types shipped; few ever send a pattern

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True  # whether it matches is all that is asked, and that is quicker
    try:
        compiled = re2.compile(pattern, options=options)
    except re2.error:
        return None
    if compiled.programsize > MAX_PROGRAM:
        return None
    return lambda transactional_id: compiled.fullmatch(transactional_id) is not None
