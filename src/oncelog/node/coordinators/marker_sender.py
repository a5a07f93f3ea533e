"""Sends the markers of decided transactions to the leaders of their partitions, until each has one.

Markers wait here between the decision, durable, and the node's next event: EndTxn is answered first, and whoever asks
next finds them written. A partition whose leader is unknown, or that refuses for now, is tried again; one that the
cluster does not have any more needs no marker, for nobody reads what was written there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_BROKER, TopicPartition
from oncelog.handlers.broker.ports import Marker
from oncelog.node.brokers.messages import BrokerMessages, WriteMarker
from oncelog.node.cluster.metadata import Metadata
from oncelog.node.kernel.deadlines import Deadlines

if TYPE_CHECKING:
    from oncelog.core.transactions.model import MarkersToWrite
    from oncelog.core.transactions.shard import TransactionShard
    from oncelog.node.coordinators.hosted_shard import HostedShard

RETRY_MS: Final = 100

Written = Callable[["HostedShard[TransactionShard]", "MarkersToWrite", TopicPartition], None]


class MarkerToSend(NamedTuple):
    """The marker of one transaction for one partition, on behalf of the shard that decided."""

    hosted: HostedShard[TransactionShard]
    markers: MarkersToWrite
    message: WriteMarker

    @property
    def partition(self) -> TopicPartition:
        """The partition that the marker is for."""
        return self.message.partition


class MarkerSender:
    """Markers that are decided and not yet written. ``written(hosted, markers, partition)`` is told what needs no
    marker any more."""

    def __init__(self, messages: BrokerMessages, metadata: Metadata, deadlines: Deadlines, written: Written) -> None:
        self._messages = messages
        self._metadata = metadata
        self._deadlines = deadlines
        self._written = written
        self._decided: deque[tuple[HostedShard[TransactionShard], list[MarkersToWrite]]] = deque()
        self.retrying = 0
        """Markers that are tried again: their log refused them, or their leader is unknown."""

    def add(self, hosted: HostedShard[TransactionShard], markers: list[MarkersToWrite]) -> None:
        """Send the markers of a decision that is durable, with the next event."""
        self._decided.append((hosted, markers))

    def has_decided(self) -> bool:
        """True if markers are to be sent with the next event."""
        return bool(self._decided)

    def send_decided(self) -> None:
        """Send what was decided before this event: the answers to EndTxn are on their way."""
        for _ in range(len(self._decided)):
            hosted, markers = self._decided.popleft()
            for each in markers:
                marker = _marker(each)
                for partition in each.partitions:
                    self._send(MarkerToSend(hosted, each, WriteMarker(partition, marker)))

    def _send(self, sending: MarkerToSend) -> None:
        if not sending.hosted.is_led:
            return
        image = self._metadata.image.partition(sending.partition)
        if image is None:
            self._done(sending)
        elif image.leader == NO_BROKER:
            self._retry(sending)
        else:
            self._messages.send(image.leader, sending.message, partial(self._answered, sending))

    def _answered(self, sending: MarkerToSend, answer: object) -> None:
        """A partition that has seen a later epoch of the producer needs no marker: its transaction there has been
        ended, by an administrator for one. A later coordinator epoch has its own markers."""
        if answer is ErrorCode.NONE or answer is ErrorCode.INVALID_PRODUCER_EPOCH:
            self._done(sending)
        elif answer is not ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            self._retry(sending)

    def _done(self, sending: MarkerToSend) -> None:
        if sending.hosted.is_led:
            self._written(sending.hosted, sending.markers, sending.partition)

    def _retry(self, sending: MarkerToSend) -> None:
        self.retrying += 1
        self._deadlines.at(self._deadlines.now_ms + RETRY_MS, partial(self._try_again, sending))

    def _try_again(self, sending: MarkerToSend, _now_ms: int) -> None:
        self.retrying -= 1
        self._send(sending)


def _marker(markers: MarkersToWrite) -> Marker:
    return Marker(
        producer_id=markers.identity.producer_id,
        producer_epoch=markers.identity.producer_epoch,
        coordinator_epoch=markers.coordinator_epoch,
        committed=markers.committed,
        transaction_version=markers.client_version,
    )
