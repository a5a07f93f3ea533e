"""Messages to other brokers that share requests: markers (KIP-98), partitions (KIP-890), descriptions (KIP-664).

The messages of one event for one broker go together, as many as fit. Each kind has a connection of its own, because
what may wait long must not hold up what may not:

- *Markers* are for partitions that other brokers lead, by WriteTxnMarkers. One request at a time is under way to a
  broker: it is answered when its markers are durable there, and what has come meanwhile goes with the next. A response
  names a marker by producer id alone, so a request has one marker of a producer. A partition that the response does not
  name has no marker as far as is known.
- *Partitions* of transactions that other brokers coordinate are added or verified by AddPartitionsToTxn, from version 4
  on as only brokers may. A response names a transaction by its id, so a request has an id once. Questions that only
  verify are answered at once and go ahead of those that add, which may wait for a transaction to be completed. An
  answer counts for exactly the partitions it names: one that is missing makes the whole answer worthless.
- *Descriptions* come by DescribeTransactions. A coordinator answers by what is durable, or with an error. An error
  other than "not known", and an id that the response does not name, are no answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, ProducerEpoch, ProducerId, TopicName, TopicPartition, TransactionalId
from oncelog.core.transactions.model import AddReply, Identity, TransactionDescription, VerifyReply
from oncelog.handlers.broker.context import CoordinatorRefusal
from oncelog.handlers.transactions.requests import by_topic
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
"""Bytes of names in one request: half of what a broker accepts by default (``oncelog.request.max.bytes``)."""
MOST_MARKERS: Final = 1000
"""Markers in one request, one a partition: a quarter of a megabyte at most."""
MOST_DESCRIPTIONS: Final = 100
ANSWER_IS_DUE_MS: Final = 5000
"""Beyond the time-out of a receiver of markers: its answer has to come back yet."""
_ENTRY_BYTES: Final = 32

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)
Errors = Mapping[TopicPartition, ErrorCode]


@dataclass(slots=True, eq=False)
class Queued(Generic[M]):
    """A message and the callback for its answer; None once nobody waits for it."""

    message: M
    answered: OnAnswer | None

    def answer(self, answer: object) -> None:
        """Hand the answer over, once."""
        answered, self.answered = self.answered, None
        if answered is not None:
            answered(answer)

    def forget(self) -> None:
        """Forget the answer: nobody waits for it any more."""
        self.answered = None


class Batch(Protocol[M_contra]):
    """The messages of one request."""

    def take(self, message: M_contra, /) -> bool:
        """Take a message in; False where the request is full, or cannot have it beside another. The first fits."""

    def request(self) -> Request[Any]:
        """The request for all of them."""


class QueuedRequests(Generic[M]):
    """Messages that wait to share a request: first in, first out, for each broker."""

    def __init__(
        self, links: BrokerLinks, purpose: LinkPurpose, new_batch: Callable[[], Batch[M]], timeout_ms: int | None = None
    ) -> None:
        self._links = links
        self._purpose = purpose
        self._new_batch = new_batch
        self._timeout_ms = timeout_ms
        self._queues: dict[BrokerId, deque[Queued[M]]] = {}

    def send(self, broker_id: BrokerId, message: M, answered: OnAnswer) -> Cancel:
        """Queue a message; the result forgets it."""
        queued = Queued(message, answered)
        self._queues.setdefault(broker_id, deque()).append(queued)
        return queued.forget

    def send_queued(self) -> bool:
        """Send the messages that the event has queued; True if some still wait."""
        while self._queues:
            for broker_id in list(self._queues):
                self._send_next(broker_id)
        return False

    def _send_next(self, broker_id: BrokerId) -> bool:
        """Send the first messages for a broker, up to the first that does not fit; False if all were forgotten."""
        batch = self._new_batch()
        queue, taken = self._queues[broker_id], list[Queued[M]]()
        while queue and (queue[0].answered is None or batch.take(queue[0].message)):
            queued = queue.popleft()
            if queued.answered is not None:
                taken.append(queued)
        if not queue:
            del self._queues[broker_id]
        if taken:
            answered = partial(self._answered, broker_id, taken)
            self._links.request(broker_id, self._purpose, batch.request(), answered, self._timeout_ms)
        return bool(taken)

    def _answered(self, broker_id: BrokerId, sent: list[Queued[M]], response: Any) -> None:
        """Hand out the answers in a response; None if there was none."""
        raise NotImplementedError


class MarkerRequests(QueuedRequests[WriteMarker]):
    """Sends markers to remote leaders by WriteTxnMarkers, one request at a time to each."""

    def __init__(self, links: BrokerLinks, request_timeout_ms: int) -> None:
        super().__init__(links, LinkPurpose.MARKERS, _MarkerBatch, request_timeout_ms + ANSWER_IS_DUE_MS)
        self._under_way: set[BrokerId] = set()

    def send_queued(self) -> bool:
        """Send to the brokers that have answered all before; True if some messages still wait."""
        for broker_id in list(self._queues):
            if broker_id not in self._under_way and self._send_next(broker_id):
                self._under_way.add(broker_id)
        return bool(self._queues)

    def _answered(
        self, broker_id: BrokerId, sent: list[Queued[WriteMarker]], response: WriteTxnMarkersResponse | None
    ) -> None:
        self._under_way.discard(broker_id)
        outcomes = {
            (marker.producer_id, TopicPartition(TopicName(topic.name), each.partition_index)): each.error_code
            for marker in (() if response is None else response.markers)
            for topic in marker.topics
            for each in topic.partitions
        }
        for queued in sent:
            code = outcomes.get((queued.message.marker.producer_id, queued.message.partition))
            queued.answer(UNREACHABLE if code is None else error_code_of(code))


class _MarkerBatch:
    """Markers, one of a producer, with the partitions of each by topic."""

    def __init__(self) -> None:
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
    """Asks remote coordinators by AddPartitionsToTxn. One instance adds partitions, another verifies them."""

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
                TopicPartition(TopicName(topic.name), each.partition_index): error_code_of(each.partition_error_code)
                for topic in result.topic_results
                for each in topic.results_by_partition
            }
            for result in response.results_by_transaction
        }
        for queued in sent:
            queued.answer(_added(queued.message.request, by_id.get(queued.message.request.transactional_id, {})))


def _added(request: AddRequest, errors: Errors) -> object:
    """The reply to one question, as the coordinator gives it to a question of its own broker."""
    if any(partition not in errors for partition in request.partitions):
        return UNREACHABLE
    outcomes = {partition: errors[partition] for partition in request.partitions}
    if request.verify_only:
        return VerifyReply(ErrorCode.NONE, outcomes)
    refused = [error_code for error_code in outcomes.values() if error_code is not ErrorCode.NONE]
    reasons = [error_code for error_code in refused if error_code is not ErrorCode.OPERATION_NOT_ATTEMPTED]
    return AddReply([*reasons, *refused, ErrorCode.NONE][0])


class _PartitionBatch:
    """Transactions, each id once."""

    def __init__(self) -> None:
        self._transactions: dict[str, AddPartitionsToTxnTransaction] = {}
        self._bytes = 0

    def take(self, message: AddPartitions) -> bool:
        request = message.request
        # An upper bound: every partition with its topic's name.
        names = sum(_ENTRY_BYTES + len(partition.topic) for partition in request.partitions)
        size = _ENTRY_BYTES + 4 * len(request.transactional_id) + names
        known = self._transactions
        if request.transactional_id in known or (known and self._bytes + size > MOST_BYTES):
            return False
        self._bytes += size
        known[request.transactional_id] = AddPartitionsToTxnTransaction(
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
    """Asks remote coordinators by DescribeTransactions."""

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
    """Transactional ids."""

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


def error_code_of(number: int) -> ErrorCode:
    """The error code of a response; UNKNOWN_SERVER_ERROR for one that this version does not know: never NONE."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
