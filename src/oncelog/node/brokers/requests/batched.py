"""Messages to other brokers that share requests: markers (KIP-98), partitions (KIP-890), descriptions (KIP-664).

One event's messages for one broker are sent together, as many as fit. Each kind uses its own connection, so that slow
requests do not delay fast ones. A message missing from its response counts as unanswered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from oncelog.base.errors import ErrorCode, error_code_of
from oncelog.base.ids import BrokerId, ProducerEpoch, ProducerId, TopicName, TopicPartition, TransactionalId, by_topic
from oncelog.core.transactions.identity import Identity
from oncelog.core.transactions.model import AddReply, TransactionDescription, VerifyReply
from oncelog.handlers.broker.context import CoordinatorRefusal
from oncelog.node.brokers.broker_links import BrokerLinks, LinkPurpose
from oncelog.node.brokers.messages import UNREACHABLE, AddPartitions, Cancel, DescribeTransaction, OnAnswer, WriteMarker
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from oncelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from oncelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from oncelog.core.transactions.model import AddRequest
    from oncelog.handlers.broker.ports import Marker
    from oncelog.wire.message import Request

MOST_BYTES: Final = 512 * 1024
"""Bytes of names in a request: half of what a broker accepts by default (``oncelog.request.max.bytes``)."""
MOST_MARKERS: Final = 1000
"""Markers in a request, one per partition: at most a quarter of a megabyte."""
MOST_DESCRIPTIONS: Final = 100
ANSWER_IS_DUE_MS: Final = 5000
"""Time for the response to travel, after the receiver's own time-out for markers."""
_ENTRY_BYTES: Final = 32

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)
Errors = Mapping[TopicPartition, ErrorCode]


@dataclass(slots=True, eq=False)
class Queued(Generic[M]):
    """A message and the callback for its answer, which is None once answered or cancelled."""

    message: M
    on_answer: OnAnswer | None

    def answer(self, answer: object) -> None:
        on_answer, self.on_answer = self.on_answer, None
        if on_answer is not None:
            on_answer(answer)

    def forget(self) -> None:
        self.on_answer = None


class Batch(Protocol[M_contra]):
    def take(self, message: M_contra, /) -> bool:
        """Add a message; False if the request is full, or the message conflicts with another. The first message always
        fits."""

    def request(self) -> Request[Any]:
        """The request with all messages."""


class QueuedRequests(Generic[M]):
    """Queues of messages, one per broker, whose first messages share the next request."""

    def __init__(
        self, links: BrokerLinks, purpose: LinkPurpose, new_batch: Callable[[], Batch[M]], timeout_ms: int | None = None
    ) -> None:
        self._links = links
        self._purpose = purpose
        self._new_batch = new_batch
        self._timeout_ms = timeout_ms
        self._queues: dict[BrokerId, deque[Queued[M]]] = {}

    def send(self, broker_id: BrokerId, message: M, on_answer: OnAnswer) -> Cancel:
        queued = Queued(message, on_answer)
        self._queues.setdefault(broker_id, deque()).append(queued)
        return queued.forget

    def send_queued(self) -> bool:
        """Send the messages queued by this event; True if some still wait."""
        while self._queues:
            for broker_id in list(self._queues):
                self._send_next(broker_id)
        return False

    def _send_next(self, broker_id: BrokerId) -> bool:
        """Send the messages that fit; False if all were cancelled."""
        batch = self._new_batch()
        queue, taken = self._queues[broker_id], list[Queued[M]]()
        while queue and (queue[0].on_answer is None or batch.take(queue[0].message)):
            queued = queue.popleft()
            if queued.on_answer is not None:
                taken.append(queued)
        if not queue:
            del self._queues[broker_id]
        if taken:
            on_response = partial(self._answered, broker_id, taken)
            self._links.request(broker_id, self._purpose, batch.request(), on_response, self._timeout_ms)
        return bool(taken)

    def _answered(self, broker_id: BrokerId, sent: list[Queued[M]], response: Any) -> None:
        """Hand out the answers; None: no response came."""
        raise NotImplementedError


class MarkerRequests(QueuedRequests[WriteMarker]):
    """Sends markers to the leaders of their partitions, one WriteTxnMarkers per broker at a time: it is answered when
    its markers are durable, and markers queued meanwhile share the next."""

    def __init__(self, links: BrokerLinks, request_timeout_ms: int) -> None:
        super().__init__(links, LinkPurpose.MARKERS, _MarkerBatch, request_timeout_ms + ANSWER_IS_DUE_MS)
        self._under_way: set[BrokerId] = set()

    def send_queued(self) -> bool:
        """Send to the brokers without a request in flight; True if some messages still wait."""
        for broker_id in list(self._queues):
            if broker_id not in self._under_way and self._send_next(broker_id):
                self._under_way.add(broker_id)
        return bool(self._queues)

    def _answered(
        self, broker_id: BrokerId, sent: list[Queued[WriteMarker]], response: WriteTxnMarkersResponse | None
    ) -> None:
        self._under_way.discard(broker_id)
        outcomes = {
            (marker.producer_id, TopicPartition(TopicName(topic.name), result.partition_index)): result.error_code
            for marker in (() if response is None else response.markers)
            for topic in marker.topics
            for result in topic.partitions
        }
        for queued in sent:
            code = outcomes.get((queued.message.marker.producer_id, queued.message.partition))
            queued.answer(UNREACHABLE if code is None else error_code_of(code))


class _MarkerBatch:
    def __init__(self) -> None:
        # At most one marker of a producer, because a response identifies a marker by producer id alone; and the
        # partitions of each by topic.
        self._markers: dict[ProducerId, Marker] = {}
        self._topics: dict[ProducerId, dict[str, dict[int, None]]] = {}
        self._count = 0

    def take(self, message: WriteMarker) -> bool:
        marker, partition = message.marker, message.partition
        if self._count == MOST_MARKERS or self._markers.setdefault(marker.producer_id, marker) != marker:
            return False
        topics = self._topics.setdefault(marker.producer_id, {})
        topics.setdefault(partition.topic, {})[partition.partition] = None
        self._count += 1
        return True

    def request(self) -> WriteTxnMarkersRequest:
        return WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=marker.producer_id,
                    producer_epoch=marker.producer_epoch,
                    transaction_result=marker.committed,
                    topics=[
                        WritableTxnMarkerTopic(name=name, partition_indexes=list(indexes))
                        for name, indexes in self._topics[producer_id].items()
                    ],
                    coordinator_epoch=marker.coordinator_epoch,
                    transaction_version=marker.transaction_version,
                )
                for producer_id, marker in self._markers.items()
            ]
        )


class PartitionRequests(QueuedRequests[AddPartitions]):
    """Sends AddPartitionsToTxn, from version 4 on, which only brokers may send. One instance adds partitions, another
    verifies them, so that verifying does not wait behind an addition that waits for a transaction to complete."""

    def __init__(self, links: BrokerLinks, purpose: LinkPurpose, timeout_ms: int) -> None:
        super().__init__(links, purpose, _PartitionBatch, timeout_ms)

    def _answered(
        self, _broker_id: BrokerId, sent: list[Queued[AddPartitions]], response: AddPartitionsToTxnResponse | None
    ) -> None:
        if response is None or response.error_code != ErrorCode.NONE:
            refused = UNREACHABLE if response is None else CoordinatorRefusal(error_code_of(response.error_code))
            for queued in sent:
                queued.answer(refused)
            return
        by_id: dict[str, Errors] = {
            result.transactional_id: {
                TopicPartition(TopicName(topic.name), partition_result.partition_index): error_code_of(
                    partition_result.partition_error_code
                )
                for topic in result.topic_results
                for partition_result in topic.results_by_partition
            }
            for result in response.results_by_transaction
        }
        for queued in sent:
            queued.answer(_added(queued.message.request, by_id.get(queued.message.request.transactional_id, {})))


def _added(request: AddRequest, errors: Errors) -> object:
    """The reply to one request, in the form that the own broker's coordinator gives."""
    if any(partition not in errors for partition in request.partitions):
        return UNREACHABLE
    outcomes = {partition: errors[partition] for partition in request.partitions}
    if request.verify_only:
        return VerifyReply(ErrorCode.NONE, outcomes)
    refused = [error_code for error_code in outcomes.values() if error_code is not ErrorCode.NONE]
    reasons = [error_code for error_code in refused if error_code is not ErrorCode.OPERATION_NOT_ATTEMPTED]
    return AddReply([*reasons, *refused, ErrorCode.NONE][0])


class _PartitionBatch:
    def __init__(self) -> None:
        self._transactions: dict[str, AddPartitionsToTxnTransaction] = {}
        self._bytes = 0

    def take(self, message: AddPartitions) -> bool:
        request = message.request
        # A request has each id once: a response identifies a transaction by its id.
        # An upper bound: the topic's name counts for every partition.
        names = sum(_ENTRY_BYTES + len(partition.topic) for partition in request.partitions)
        size = _ENTRY_BYTES + 4 * len(request.transactional_id) + names
        transactions = self._transactions
        if request.transactional_id in transactions or (transactions and self._bytes + size > MOST_BYTES):
            return False
        self._bytes += size
        transactions[request.transactional_id] = AddPartitionsToTxnTransaction(
            transactional_id=request.transactional_id,
            producer_id=request.identity.producer_id,
            producer_epoch=request.identity.producer_epoch,
            verify_only=request.verify_only,
            topics=[
                AddPartitionsToTxnTopic(name=name, partitions=list(indexes))
                for name, indexes in by_topic(request.partitions).items()
            ],
        )
        return True

    def request(self) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(transactions=list(self._transactions.values()))


class TransactionDescriptions(QueuedRequests[DescribeTransaction]):
    def __init__(self, links: BrokerLinks) -> None:
        super().__init__(links, LinkPurpose.VERIFICATION, _DescriptionBatch)

    def _answered(
        self,
        _broker_id: BrokerId,
        sent: list[Queued[DescribeTransaction]],
        response: DescribeTransactionsResponse | None,
    ) -> None:
        states = () if response is None else response.transaction_states
        by_id = {state.transactional_id: state for state in states}
        for queued in sent:
            state = by_id.get(queued.message.transactional_id)
            queued.answer(UNREACHABLE if state is None else _description(state))


def _description(state: TransactionState) -> object:
    # Any error but "not found" counts as no answer.
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
        tuple(TopicPartition(TopicName(topic.topic), index) for topic in state.topics for index in topic.partitions),
    )


class _DescriptionBatch:
    def __init__(self) -> None:
        self._ids: dict[str, None] = {}
        self._bytes = 0

    def take(self, message: DescribeTransaction) -> bool:
        size = 4 * len(message.transactional_id)
        if self._ids and (len(self._ids) == MOST_DESCRIPTIONS or self._bytes + size > MOST_BYTES):
            return False
        self._ids[message.transactional_id] = None
        self._bytes += size
        return True

    def request(self) -> DescribeTransactionsRequest:
        return DescribeTransactionsRequest(transactional_ids=list(self._ids))
