"""All requests that carry messages to other brokers, and who sends which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.node.brokers.broker_links import BrokerLinks, LinkPurpose
from oncelog.node.brokers.messages import (
    AddPartitions,
    Answered,
    AwaitMarkers,
    DescribeTransaction,
    FindTransactionalIds,
    Forget,
    Message,
    Sender,
    WriteMarker,
)
from oncelog.node.brokers.requests.awaited_markers import AwaitedMarkers
from oncelog.node.brokers.requests.descriptions import TransactionDescriptions
from oncelog.node.brokers.requests.marker_requests import MarkerRequests
from oncelog.node.brokers.requests.partition_requests import PartitionRequests
from oncelog.node.brokers.requests.transactional_ids import TransactionalIds

if TYPE_CHECKING:
    from oncelog.base.ids import BrokerId
    from oncelog.node.cluster.metadata import Metadata
    from oncelog.node.kernel.deadlines import Deadlines


class Senders:
    """One sender for each type of message. Those of them that queue send the messages of one event together."""

    def __init__(self, links: BrokerLinks, metadata: Metadata, deadlines: Deadlines) -> None:
        timeout_ms = int(metadata.config.get("request.timeout.ms"))
        self._markers = MarkerRequests(links, timeout_ms)
        self._adding = PartitionRequests(links, LinkPurpose.TRANSACTIONS, timeout_ms)
        self._verifying = PartitionRequests(links, LinkPurpose.VERIFICATION, timeout_ms)
        self._descriptions = TransactionDescriptions(links)
        self.awaited_markers = AwaitedMarkers(links, metadata, deadlines)
        self._senders: dict[type, Sender] = {
            WriteMarker: self._markers.send,
            AddPartitions: self._send_partitions,
            AwaitMarkers: self.awaited_markers.send,
            DescribeTransaction: self._descriptions.send,
            FindTransactionalIds: TransactionalIds(links, metadata).send,
        }

    def send(self, broker_id: BrokerId, message: Message, answered: Answered) -> Forget:
        """Send a message, at once or with :meth:`send_queued`; the result forgets the question."""
        return self._senders[type(message)](broker_id, message, answered)

    def _send_partitions(self, broker_id: BrokerId, message: AddPartitions, answered: Answered) -> Forget:
        return (self._verifying if message.request.verify_only else self._adding).send(broker_id, message, answered)

    def send_queued(self) -> bool:
        """Send what the event has queued; True if something is still queued."""
        queues = (self._markers, self._adding, self._verifying, self._descriptions)
        waiting = [queued.send_queued() for queued in queues]
        return any(waiting)
