"""All requests that carry messages to other brokers, and who sends which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.node.broker_messages import (
    AddPartitions,
    Answered,
    AwaitMarkers,
    BrokerMessages,
    DescribeTransaction,
    FindTransactionalIds,
    Forget,
    WriteMarker,
)
from oncelog.node.broker_requests.awaited_markers import AwaitedMarkers
from oncelog.node.broker_requests.descriptions import TransactionDescriptions
from oncelog.node.broker_requests.marker_requests import MarkerRequests
from oncelog.node.broker_requests.partition_requests import PartitionRequests
from oncelog.node.broker_requests.transactional_ids import TransactionalIds
from oncelog.node.links.broker_links import BrokerLinks, LinkPurpose

if TYPE_CHECKING:
    from oncelog.base.ids import BrokerId
    from oncelog.node.deadlines import Deadlines
    from oncelog.node.metadata import Metadata


class BrokerRequests:
    """Sends the messages of one event together."""

    def __init__(self, messages: BrokerMessages, links: BrokerLinks, metadata: Metadata, deadlines: Deadlines) -> None:
        timeout_ms = int(metadata.config.get("request.timeout.ms"))
        self._markers = MarkerRequests(links, timeout_ms)
        self._adding = PartitionRequests(links, LinkPurpose.TRANSACTIONS, timeout_ms)
        self._verifying = PartitionRequests(links, LinkPurpose.VERIFICATION, timeout_ms)
        self._descriptions = TransactionDescriptions(links)
        self.awaited_markers = AwaitedMarkers(links, metadata, deadlines)
        self._has_queued = False
        messages.send_with(WriteMarker, self._send_marker)
        messages.send_with(AddPartitions, self._send_partitions)
        messages.send_with(AwaitMarkers, self.awaited_markers.send)
        messages.send_with(DescribeTransaction, self._send_description)
        messages.send_with(FindTransactionalIds, TransactionalIds(links, metadata).send)

    def _send_marker(self, broker_id: BrokerId, message: WriteMarker, answered: Answered) -> Forget:
        self._has_queued = True
        return self._markers.send(broker_id, message, answered)

    def _send_partitions(self, broker_id: BrokerId, message: AddPartitions, answered: Answered) -> Forget:
        self._has_queued = True
        return (self._verifying if message.request.verify_only else self._adding).send(broker_id, message, answered)

    def _send_description(self, broker_id: BrokerId, message: DescribeTransaction, answered: Answered) -> Forget:
        self._has_queued = True
        return self._descriptions.send(broker_id, message, answered)

    def send_queued(self) -> None:
        """Send what the event has queued."""
        if self._has_queued:  # asked after every event
            queues = (self._markers, self._adding, self._verifying, self._descriptions)
            waiting = [queued.send_queued() for queued in queues]
            self._has_queued = any(waiting)
