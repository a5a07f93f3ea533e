"""The requests that carry this broker's messages to others.

Senders and message classes are imported for the first message: a single broker sends none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.node.brokers.broker_links import LinkPurpose
from oncelog.node.brokers.messages import (
    AddPartitions,
    AwaitMarkers,
    BrokerMessages,
    Cancel,
    ChangeShareState,
    DescribeTransaction,
    FindTransactionalIds,
    Message,
    OnAnswer,
    Sender,
    WriteMarker,
)

if TYPE_CHECKING:
    from oncelog.base.ids import BrokerId, ProducerId, TopicPartition
    from oncelog.node.brokers.broker_links import BrokerLinks
    from oncelog.node.brokers.requests.batched import QueuedRequests
    from oncelog.node.brokers.requests.listings import AwaitedMarkers
    from oncelog.node.brokers.requests.share_states import ShareStateRequests
    from oncelog.node.cluster.metadata import Metadata
    from oncelog.node.kernel.deadlines import Deadlines


class BrokerRequests:
    """One sender for each type of message; ``send_queued`` sends what the event has queued."""

    def __init__(self, messages: BrokerMessages, links: BrokerLinks, metadata: Metadata, deadlines: Deadlines) -> None:
        self._links = links
        self._metadata = metadata
        self._deadlines = deadlines
        self._senders: dict[type, Sender] = {}
        self._queues: tuple[QueuedRequests[Any] | ShareStateRequests, ...] = ()
        self._has_queued = False
        self._awaited_markers: AwaitedMarkers | None = None
        messages.set_sender(self._send)

    def _send(self, broker_id: BrokerId, message: Message, on_answer: OnAnswer) -> Cancel:
        if not self._senders:
            self._make_senders()
        self._has_queued = True
        return self._senders[type(message)](broker_id, message, on_answer)

    def _make_senders(self) -> None:
        from oncelog.node.brokers.requests.batched import MarkerRequests, PartitionRequests, TransactionDescriptions
        from oncelog.node.brokers.requests.listings import AwaitedMarkers, TransactionalIds
        from oncelog.node.brokers.requests.share_states import ShareStateRequests

        links, timeout_ms = self._links, int(self._metadata.config.get("request.timeout.ms"))
        markers = MarkerRequests(links, timeout_ms)
        adding = PartitionRequests(links, LinkPurpose.TRANSACTIONS, timeout_ms)
        verifying = PartitionRequests(links, LinkPurpose.VERIFICATION, timeout_ms)
        descriptions = TransactionDescriptions(links)
        self._awaited_markers = AwaitedMarkers(links, self._metadata, self._deadlines)
        share_states = ShareStateRequests(links)
        self._queues = (markers, adding, verifying, descriptions, share_states)

        def send_partitions(broker_id: BrokerId, message: AddPartitions, on_answer: OnAnswer) -> Cancel:
            return (verifying if message.request.verify_only else adding).send(broker_id, message, on_answer)

        self._senders = {
            WriteMarker: markers.send,
            AddPartitions: send_partitions,
            AwaitMarkers: self._awaited_markers.send,
            DescribeTransaction: descriptions.send,
            FindTransactionalIds: TransactionalIds(links, self._metadata).send,
            ChangeShareState: share_states.send,
        }

    def send_queued(self) -> None:
        if self._has_queued:  # called after every event
            waiting = [queue.send_queued() for queue in self._queues]
            self._has_queued = any(waiting)

    def is_marker_awaited(self, partition: TopicPartition, producer_id: ProducerId) -> bool:
        return self._awaited_markers is not None and self._awaited_markers.is_awaited(partition, producer_id)

    def marked(self, partition: TopicPartition, producer_id: ProducerId) -> None:
        if self._awaited_markers is not None:
            self._awaited_markers.marked(partition, producer_id)
