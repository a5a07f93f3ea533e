"""Markers for partitions that other brokers lead, as WriteTxnMarkers (KIP-98).

One request at a time is under way to a broker: it is answered when its markers are durable there, and what has come
meanwhile goes with the next. A response names a marker by producer id alone, so a request has one marker of a producer.
A partition that the response does not name has no marker as far as is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.base.ids import BrokerId, ProducerId, TopicName, TopicPartition
from oncelog.node.brokers.broker_links import BrokerLinks, LinkPurpose
from oncelog.node.brokers.messages import UNREACHABLE, Answered, Forget, WriteMarker
from oncelog.node.brokers.requests.queues import Queued, Queues, error_code_of
from oncelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from oncelog.base.errors import ErrorCode
    from oncelog.handlers.broker.ports import Marker

MOST_IN_REQUEST: Final = 1000
"""Markers, one a partition: a quarter of a megabyte at most."""
ANSWER_IS_DUE_MS: Final = 5000
"""Beyond the receiver's own time-out: its answer has to come back yet."""

Outcomes = Mapping[tuple[int, TopicPartition], "ErrorCode"]


class MarkerRequests:
    """Sends markers to remote leaders by WriteTxnMarkers, one request at a time to each."""

    def __init__(self, links: BrokerLinks, request_timeout_ms: int) -> None:
        self._links = links
        self._timeout_ms = request_timeout_ms + ANSWER_IS_DUE_MS
        self._queues: Queues[WriteMarker] = Queues()
        self._under_way: set[BrokerId] = set()

    def send(self, broker_id: BrokerId, message: WriteMarker, answered: Answered) -> Forget:
        """Queue a marker."""
        return self._queues.add(broker_id, message, answered).forget

    def send_queued(self) -> bool:
        """Send what was queued, to brokers that have answered all before; True if something waits still."""
        for broker_id in self._queues.brokers():
            if broker_id not in self._under_way:
                self._send(broker_id)
        return bool(self._queues)

    def _send(self, broker_id: BrokerId) -> None:
        batch = _Batch()
        taken = self._queues.take(broker_id, batch.take)
        if taken:
            self._under_way.add(broker_id)
            answered = partial(self._answered, broker_id, taken)
            self._links.request(broker_id, LinkPurpose.MARKERS, batch.request(), answered, self._timeout_ms)

    def _answered(
        self, broker_id: BrokerId, sent: list[Queued[WriteMarker]], response: WriteTxnMarkersResponse | None
    ) -> None:
        self._under_way.discard(broker_id)
        outcomes = {} if response is None else _outcomes(response)
        for queued in sent:
            message = queued.message
            queued.answer(outcomes.get((message.marker.producer_id, message.partition), UNREACHABLE))


class _Batch:
    """The markers of one request: by producer, and by topic its partitions."""

    def __init__(self) -> None:
        self._markers: dict[ProducerId, Marker] = {}
        self._topics: dict[ProducerId, dict[str, dict[int, None]]] = {}
        self._count = 0

    def take(self, message: WriteMarker) -> bool:
        """Take a marker in; False where the request is full, or has another marker of the producer."""
        marker, partition = message.marker, message.partition
        if self._count == MOST_IN_REQUEST or self._markers.setdefault(marker.producer_id, marker) != marker:
            return False
        topics = self._topics.setdefault(marker.producer_id, {})
        topics.setdefault(partition.topic, {})[partition.partition] = None
        self._count += 1
        return True

    def request(self) -> WriteTxnMarkersRequest:
        """The request for all of them."""
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


def _outcomes(response: WriteTxnMarkersResponse) -> Outcomes:
    return {
        (marker.producer_id, TopicPartition(TopicName(topic.name), partition.partition_index)): error_code_of(
            partition.error_code
        )
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
