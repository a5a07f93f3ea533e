"""Descriptions of transactions that other brokers coordinate, by DescribeTransactions (KIP-664).

What one event asks of a broker goes in one request. A coordinator answers by what is durable, or with an error; an
error other than "not known", and an id that the response does not name, are no answer.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, ProducerEpoch, ProducerId, TopicName, TopicPartition, TransactionalId
from oncelog.core.transactions.model import Identity, TransactionDescription
from oncelog.node.brokers.broker_links import BrokerLinks, LinkPurpose
from oncelog.node.brokers.messages import UNREACHABLE, Answered, DescribeTransaction, Forget
from oncelog.node.brokers.requests.queues import Queued, Queues
from oncelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

MOST_IN_REQUEST: Final = 100
MOST_BYTES: Final = 512 * 1024
"""Bytes of ids in one request: half of what a broker accepts by default (``oncelog.request.max.bytes``)."""


class TransactionDescriptions:
    """Asks remote coordinators by DescribeTransactions, one request a broker and event."""

    def __init__(self, links: BrokerLinks) -> None:
        self._links = links
        self._queues: Queues[DescribeTransaction] = Queues()

    def send(self, broker_id: BrokerId, message: DescribeTransaction, answered: Answered) -> Forget:
        """Queue a question."""
        return self._queues.add(broker_id, message, answered).forget

    def send_queued(self) -> bool:
        """Send what the event has queued; True if something is still queued, which never is."""
        while brokers := self._queues.brokers():
            for broker_id in brokers:
                batch = _Batch()
                taken = self._queues.take(broker_id, batch.take)
                if taken:
                    request = DescribeTransactionsRequest(transactional_ids=list(batch.ids))
                    self._links.request(broker_id, LinkPurpose.VERIFICATION, request, partial(_answered, taken))
        return False


class _Batch:
    """The ids of one request."""

    def __init__(self) -> None:
        self.ids: dict[str, None] = {}
        self._bytes = 0

    def take(self, message: DescribeTransaction) -> bool:
        """Take an id in; False where the request is full. The first always fits."""
        name = message.transactional_id
        size = 4 * len(name)
        if self.ids and (len(self.ids) == MOST_IN_REQUEST or self._bytes + size > MOST_BYTES):
            return False
        self.ids[name] = None
        self._bytes += size
        return True


def _answered(sent: list[Queued[DescribeTransaction]], response: DescribeTransactionsResponse | None) -> None:
    states = () if response is None else response.transaction_states
    by_id = {state.transactional_id: state for state in states}
    for queued in sent:
        state = by_id.get(queued.message.transactional_id)
        queued.answer(UNREACHABLE if state is None else _description(state))


def _description(state: TransactionState) -> object:
    """The answer to one question."""
    if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    if state.error_code != ErrorCode.NONE:
        return UNREACHABLE
    return TransactionDescription(
        TransactionalId(state.transactional_id),
        state.transaction_state,
        Identity(ProducerId(state.producer_id), ProducerEpoch(state.producer_epoch)),
        state.transaction_timeout_ms,
        state.transaction_start_time_ms,
        tuple(
            TopicPartition(TopicName(topic.topic), partition)
            for topic in state.topics
            for partition in topic.partitions
        ),
    )
