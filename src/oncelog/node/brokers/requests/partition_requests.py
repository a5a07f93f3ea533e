"""Partitions of transactions that other brokers coordinate, added or verified by AddPartitionsToTxn (KIP-890).

What one event asks of a broker goes in one request, from version 4 on as only brokers may. A response names a
transaction by its id, so a request has an id once. Questions that only verify are answered at once and go ahead of
those that add, which may wait for a transaction to be completed: each kind has a connection of its own.

An answer counts for exactly the partitions it names: one that is missing makes the whole answer worthless.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, TopicName, TopicPartition
from oncelog.core.transactions.model import AddReply, VerifyReply
from oncelog.handlers.broker.context import CoordinatorRefusal
from oncelog.handlers.transactions.requests import by_topic
from oncelog.node.brokers.broker_links import BrokerLinks, LinkPurpose
from oncelog.node.brokers.messages import UNREACHABLE, AddPartitions, Answered, Forget
from oncelog.node.brokers.requests.queues import Queued, Queues, error_code_of
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from oncelog.core.transactions.model import AddRequest

MOST_BYTES: Final = 512 * 1024
"""Bytes of names in one request: half of what a broker accepts by default (``oncelog.request.max.bytes``)."""
_ENTRY_BYTES: Final = 32

Outcomes = Mapping[TopicPartition, ErrorCode]


class PartitionRequests:
    """Asks remote coordinators by AddPartitionsToTxn: one instance for questions that add, another for those that
    verify."""

    def __init__(self, links: BrokerLinks, purpose: LinkPurpose, timeout_ms: int) -> None:
        self._links = links
        self._purpose = purpose
        self._timeout_ms = timeout_ms
        self._queues: Queues[AddPartitions] = Queues()

    def send(self, broker_id: BrokerId, message: AddPartitions, answered: Answered) -> Forget:
        """Queue a question."""
        return self._queues.add(broker_id, message, answered).forget

    def send_queued(self) -> bool:
        """Send what the event has queued; True if something waits still."""
        while brokers := self._queues.brokers():
            for broker_id in brokers:
                batch = _Batch()
                taken = self._queues.take(broker_id, batch.take)
                if taken:
                    request = AddPartitionsToTxnRequest(transactions=batch.transactions)
                    self._links.request(
                        broker_id, self._purpose, request, partial(self._answered, taken), self._timeout_ms
                    )
        return bool(self._queues)

    def _answered(self, sent: list[Queued[AddPartitions]], response: AddPartitionsToTxnResponse | None) -> None:
        if response is None:
            for queued in sent:
                queued.answer(UNREACHABLE)
            return
        if response.error_code != ErrorCode.NONE:
            for queued in sent:
                queued.answer(CoordinatorRefusal(error_code_of(response.error_code)))
            return
        by_id = _by_id(response)
        for queued in sent:
            message = queued.message
            outcomes = by_id.get(message.request.transactional_id, {})
            queued.answer(_reply(message, {p: outcomes[p] for p in message.request.partitions if p in outcomes}))


class _Batch:
    """The transactions of one request."""

    def __init__(self) -> None:
        self.transactions: list[AddPartitionsToTxnTransaction] = []
        self._ids: set[str] = set()
        self._bytes = 0

    def take(self, message: AddPartitions) -> bool:
        """Take a question in; False where the request is full, or has the id already. The first always fits."""
        request = message.request
        size = _size(request)
        if request.transactional_id in self._ids or (self._ids and self._bytes + size > MOST_BYTES):
            return False
        self._ids.add(request.transactional_id)
        self._bytes += size
        self.transactions.append(
            AddPartitionsToTxnTransaction(
                transactional_id=request.transactional_id,
                producer_id=request.identity.producer_id,
                producer_epoch=request.identity.producer_epoch,
                verify_only=request.verify_only,
                topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=list(indexes))
                    for name, indexes in by_topic(request.partitions).items()
                ],
            )
        )
        return True


def _size(request: AddRequest) -> int:
    """An upper bound: every partition with its topic's name."""
    names = sum(_ENTRY_BYTES + len(partition.topic) for partition in request.partitions)
    return _ENTRY_BYTES + 4 * len(request.transactional_id) + names


def _by_id(response: AddPartitionsToTxnResponse) -> dict[str, Outcomes]:
    return {
        result.transactional_id: {
            TopicPartition(TopicName(topic.name), each.partition_index): error_code_of(each.partition_error_code)
            for topic in result.topic_results
            for each in topic.results_by_partition
        }
        for result in response.results_by_transaction
    }


def _reply(message: AddPartitions, outcomes: Outcomes) -> object:
    """The reply to one question, as the coordinator gives it to a question of its own broker."""
    if any(partition not in outcomes for partition in message.request.partitions):
        return UNREACHABLE
    if message.request.verify_only:
        return VerifyReply(ErrorCode.NONE, outcomes)
    refused = [error_code for error_code in outcomes.values() if error_code is not ErrorCode.NONE]
    reasons = [error_code for error_code in refused if error_code is not ErrorCode.OPERATION_NOT_ATTEMPTED]
    return AddReply([*reasons, *refused, ErrorCode.NONE][0])
