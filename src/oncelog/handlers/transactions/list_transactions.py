"""ListTransactions, versions 0 to 2 (KIP-664, KIP-994, KIP-1152): the transactional ids this broker coordinates.

Filters by state, producer id, duration (1) and a pattern (2) that the whole id has to match. States are named exactly;
those that do not exist come back. A pattern is compiled and matched by a worker, within the bounds of
``records.patterns``. One sees the ids one may describe.

A broker that waits for markers (``node.brokers.requests.listings``) names in tags of ours the partitions of
``__transaction_state`` that it believes this one to lead, with their epochs; it is answered only if that is so.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TRANSACTION_STATE, ProducerId
from oncelog.core.transactions.states import state_named
from oncelog.handlers.api import Operation, ResourceType
from oncelog.handlers.broker.broker_clients import is_trusted_broker
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Lane, NextSlice, Offload, Steps
from oncelog.records.patterns import Pattern, PatternRefused
from oncelog.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from oncelog.core.transactions.model import TransactionListing
    from oncelog.core.transactions.shard import TransactionShard

ERRORS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "a part of the transactions is still being read from the log; try again",
    ErrorCode.NOT_COORDINATOR: "(broker) other partitions of the transactions are led here than the broker believes",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the pattern is not one of RE2, or is too large (version 2)",
}

_MANY: Final = 5000
_WORK_PER_SLICE: Final = 2_000_000
"""Bytes of ids times instructions of the pattern: 10 ms at most, after which a client that left stops the work."""


def handle(request: ListTransactionsRequest, context: Context) -> Steps[ListTransactionsResponse]:
    """List the transactions that filters and authoriser let through; none while some are still being loaded."""
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

    takes_turns = sum(shard.id_count() for shard in shards) > _MANY
    listings: list[TransactionListing] = []
    for shard in shards:
        if takes_turns:
            yield NextSlice()  # a million ids in one go would keep others waiting for a second
        if not shard.is_loaded:  # it has become another broker's
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


def _visible(listings: Sequence[TransactionListing], context: Context) -> list[TransactionState]:
    """The listings of ids that the requester may describe."""
    sees_all = is_trusted_broker(context)
    return [
        TransactionState(
            transactional_id=listing.transactional_id,
            producer_id=listing.producer_id,
            transaction_state=listing.state,
        )
        for listing in listings
        if sees_all or context.would_allow(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, listing.transactional_id)
    ]


def _compiled(text: str) -> Generator[None, None, Pattern | None]:
    """Compile a pattern; None when it is refused."""
    yield
    try:
        return Pattern(text)
    except PatternRefused:
        return None


def _matching(
    pattern: Pattern, listings: Sequence[TransactionListing]
) -> Generator[None, None, list[TransactionListing]]:
    """The listings whose ids match."""
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
    """True if this broker leads all that the requester believes, in the epochs it believes."""
    led = {shard.partition: int(shard.coordinator_epoch) for shard in shards}
    believed = zip(request.led_partitions, request.leader_epochs, strict=False)
    return all(led.get(partition) == leader_epoch for partition, leader_epoch in believed)
