"""Messages between brokers as values: markers, verifications and queries about transactions, states of share groups.

A message to this broker is a call within the same event, so that a single broker and a cluster share a code path.
Messages to others are sent over links, as Kafka's requests (``requests``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from oncelog.base.ids import BrokerId, ProducerId, TopicPartition, TransactionalId

if TYPE_CHECKING:
    from oncelog.core.share_state.model import StateRequest
    from oncelog.core.transactions.model import AddRequest
    from oncelog.handlers.broker.ports import Marker

UNREACHABLE: Final = object()
"""The answer if there was no response: the message may have been carried out or not."""

OnAnswer = Callable[[Any], None]
Cancel = Callable[[], object]
Receiver = Callable[[Any, OnAnswer], Cancel]
Sender = Callable[[BrokerId, Any, OnAnswer], Cancel]


def nothing_to_cancel() -> None:
    """A no-op: the message is already answered."""


class WriteMarker(NamedTuple):
    """Append a marker to a partition that the receiver leads (WriteTxnMarkers). The answer is an ErrorCode: NONE once
    the marker is durable."""

    partition: TopicPartition
    marker: Marker


class AddPartitions(NamedTuple):
    """Add partitions to a transaction that the receiver coordinates, or only verify them (AddPartitionsToTxn, version 4
    and up). The answer is the coordinator's durable reply, or a CoordinatorRefusal.
    """

    request: AddRequest


class AwaitMarkers(NamedTuple):
    """Wait until every decided transaction of these producers that the receiver coordinates has its marker on
    ``partition``. The answer is None; it never comes before the receiver has loaded its shards."""

    partition: TopicPartition
    producer_ids: frozenset[ProducerId]


class DescribeTransaction(NamedTuple):
    """Describe a transaction that another broker coordinates (DescribeTransactions); the own shard is read directly.
    The answer is a ``TransactionDescription`` of the durable state, whose partitions, once the transaction is decided,
    are those without their marker; None if the coordinator does not know the id; UNREACHABLE if the receiver cannot
    say.
    """

    transactional_id: TransactionalId


class FindTransactionalIds(NamedTuple):
    """Find the transactional ids of these producers among the open and decided transactions that another broker
    coordinates (ListTransactions). The answer is the id by producer, possibly of fewer producers; UNREACHABLE if the
    receiver does not coordinate all that it is believed to.
    """

    producer_ids: frozenset[ProducerId]


class ChangeShareState(NamedTuple):
    """Read or change the state of a share partition that the receiver coordinates (APIs 83 to 87). The answer is the
    durable ``StateReply``, or a CoordinatorRefusal."""

    request: StateRequest


Message = WriteMarker | AddPartitions | AwaitMarkers | DescribeTransaction | FindTransactionalIds | ChangeShareState


class BrokerMessages:
    """Delivers messages to this broker by one receiver per type, and to others by one sender."""

    def __init__(self, broker_id: BrokerId) -> None:
        self._broker_id = broker_id
        self._receivers: dict[type, Receiver] = {}
        self._sender: Sender | None = None

    def set_receiver(self, kind: type, receiver: Receiver) -> None:
        """Deliver messages of one type to ``receiver(message, on_answer)``; it returns the callback that cancels the
        message."""
        self._receivers[kind] = receiver

    def set_sender(self, sender: Sender) -> None:
        self._sender = sender

    def send(self, broker_id: BrokerId, message: Message, on_answer: OnAnswer) -> Cancel:
        """Send to a broker, this one included. ``on_answer`` is called once, perhaps before this returns; the result
        cancels the message."""
        if broker_id == self._broker_id:
            return self._receivers[type(message)](message, on_answer)
        assert self._sender is not None
        return self._sender(broker_id, message, on_answer)
