"""Messages of this broker to others, as requests.

What sends them (``senders``), and the classes of their requests, are imported for the first message: a broker alone has
nobody to send one to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.node.brokers.messages import Answered, BrokerMessages, Forget, Message

if TYPE_CHECKING:
    from oncelog.base.ids import BrokerId, ProducerId, TopicPartition
    from oncelog.node.brokers.broker_links import BrokerLinks
    from oncelog.node.brokers.requests.senders import Senders
    from oncelog.node.cluster.metadata import Metadata
    from oncelog.node.kernel.deadlines import Deadlines


class BrokerRequests:
    """Carries messages to other brokers; see the module."""

    def __init__(self, messages: BrokerMessages, links: BrokerLinks, metadata: Metadata, deadlines: Deadlines) -> None:
        self._links = links
        self._metadata = metadata
        self._deadlines = deadlines
        self._senders: Senders | None = None
        self._has_queued = False
        messages.send_with(self._send)

    def _send(self, broker_id: BrokerId, message: Message, answered: Answered) -> Forget:
        if self._senders is None:
            from oncelog.node.brokers.requests.senders import Senders

            self._senders = Senders(self._links, self._metadata, self._deadlines)
        self._has_queued = True
        return self._senders.send(broker_id, message, answered)

    def send_queued(self) -> None:
        """Send what the event has queued."""
        if self._has_queued and self._senders is not None:  # asked after every event
            self._has_queued = self._senders.send_queued()

    def is_marker_awaited(self, partition: TopicPartition, producer_id: ProducerId) -> bool:
        """True if a question to another broker waits for a marker of the producer on the partition."""
        return self._senders is not None and self._senders.awaited_markers.is_awaited(partition, producer_id)

    def marked(self, partition: TopicPartition, producer_id: ProducerId) -> None:
        """A marker is durable on a partition that this broker leads."""
        if self._senders is not None:
            self._senders.awaited_markers.marked(partition, producer_id)
