"""Messages between brokers, as values; the one way by which markers and verifications travel.

A message to this broker comes back in the same step of the loop, never over a socket: one code path for one broker and
for many. A message to another broker travels as a request of Kafka's (``broker_requests``), over a link.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from oncelog.base.ids import BrokerId, ProducerId, TopicPartition, TransactionalId

if TYPE_CHECKING:
    from oncelog.core.transactions.model import AddRequest
    from oncelog.handlers.broker.ports import Marker

UNREACHABLE: Final = object()
"""The answer where none came: the message may have been carried out or not."""

OnAnswer = Callable[[Any], None]
Cancel = Callable[[], object]
Receiver = Callable[[Any, OnAnswer], Cancel]
Sender = Callable[[BrokerId, Any, OnAnswer], Cancel]


def nothing_to_cancel() -> None:
    """Do nothing: the message is answered whether anybody waits or not."""


class WriteMarker(NamedTuple):
    """Append a marker to a partition that the receiver leads (WriteTxnMarkers). Answered with an ErrorCode, NONE once
    the marker is durable."""

    partition: TopicPartition
    marker: Marker


class AddPartitions(NamedTuple):
    """Add partitions to a transaction that the receiver coordinates, or only verify that they take part
    (AddPartitionsToTxn from version 4 on). Answered with the coordinator's reply, durable, or a CoordinatorRefusal."""

    request: AddRequest


class AwaitMarkers(NamedTuple):
    """Wait until no decided transaction of these producers that the receiver coordinates lacks its marker on
    ``partition``. Answered with None then, at once where none does; not before the receiver has loaded its shards."""

    partition: TopicPartition
    producer_ids: frozenset[ProducerId]


class DescribeTransaction(NamedTuple):
    """Describe a transaction that the receiver coordinates (DescribeTransactions). Answered with its
    ``TransactionDescription``, by what is durable; once the transaction is decided the partitions are those that wait
    for their marker. Answered with None where the coordinator does not know the id, and UNREACHABLE where the receiver
    cannot say. Only for other brokers: here the shard is looked at."""

    transactional_id: TransactionalId


class FindTransactionalIds(NamedTuple):
    """Find the transactional ids of these producers among the open and decided transactions that the receiver
    coordinates (ListTransactions). Answered with the id by producer, perhaps of fewer producers; UNREACHABLE where the
    receiver cannot say for all that it is believed to coordinate. Only for other brokers: here it looks at its own
    shards."""

    producer_ids: frozenset[ProducerId]


Message = WriteMarker | AddPartitions | AwaitMarkers | DescribeTransaction | FindTransactionalIds


class BrokerMessages:
    """Sends messages to this broker, by a receiver for each type, and to others, by one sender for all."""

    def __init__(self, broker_id: BrokerId) -> None:
        self._broker_id = broker_id
        self._receivers: dict[type, Receiver] = {}
        self._sender: Sender | None = None

    def set_receiver(self, kind: type, receiver: Receiver) -> None:
        """Let ``receiver(message, answered)`` take in messages of one type; it returns how to forget the question."""
        self._receivers[kind] = receiver

    def set_sender(self, sender: Sender) -> None:
        """Let ``sender(broker_id, message, answered)`` carry messages to other brokers."""
        self._sender = sender

    def send(self, broker_id: BrokerId, message: Message, answered: OnAnswer) -> Cancel:
        """Send to a broker, this one included; ``answered`` is called once, perhaps before this returns. The result
        forgets the question: nobody waits for its answer any more."""
        if broker_id == self._broker_id:
            return self._receivers[type(message)](message, answered)
        assert self._sender is not None
        return self._sender(broker_id, message, answered)
