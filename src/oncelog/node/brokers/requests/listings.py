"""Questions to other coordinators that ListTransactions answers (KIP-664): markers to wait for, ids of producers.

*Markers.* No request of Kafka's says "tell me when no decided transaction of these producers lacks its marker on this
partition". But the questioner leads the partition, so it sees the marker itself. Only what was decided before the
question has to be known: ListTransactions, filtered by producers and by the states in which a transaction is decided
and not complete, says that. A producer that is listed is waited for until a marker of it is durable on the partition,
here, or until it is not listed any more: its transaction may have had its marker long ago, or never have written there.

*Ids.* A leader knows a producer by number where the name that came with its records was lost: with the file of names,
or in a power cut. Its coordinator may be any broker, so all are asked, each for the open and the decided transactions
of these producers. An error is no answer.

A question names the partitions of ``__transaction_state`` that the other broker is believed to lead, with their epochs,
in tags of our own that Apache Kafka passes over. A broker that does not lead them in these epochs would answer about
fewer transactions than it is asked about; so it refuses.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TRANSACTION_STATE, BrokerId, ProducerId, TopicPartition, TransactionalId
from oncelog.core.transactions.states import AT_REST, STATE_NAMES, STORED, TransactionState
from oncelog.node.brokers.broker_links import BrokerLinks, LinkPurpose
from oncelog.node.brokers.messages import UNREACHABLE, AwaitMarkers, Cancel, FindTransactionalIds, OnAnswer
from oncelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from oncelog.core.controller.image.cluster_image import ClusterImage
    from oncelog.node.cluster.metadata import Metadata
    from oncelog.node.kernel.deadlines import Alarm, Deadlines


FIRST_RETRY_MS: Final = 10
LONGEST_RETRY_MS: Final = 100
MOST_FILTERED: Final = 10_000
"""Producers that a request names; of more of them all that is decided is listed."""
_DECIDED: Final = (STATE_NAMES[TransactionState.PREPARE_COMMIT], STATE_NAMES[TransactionState.PREPARE_ABORT])


def believed_leader_epochs(image: ClusterImage, broker_id: BrokerId) -> dict[int, int]:
    """The leader epoch by partition, of those that a broker leads."""
    topic = image.topics.get(TRANSACTION_STATE)
    partitions = () if topic is None else topic.partitions
    return {number: each.leader_epoch for number, each in enumerate(partitions) if each.leader == broker_id}


class AwaitedMarkers:
    """Asks remote coordinators what was decided, and waits until its markers are in the log here."""

    def __init__(self, links: BrokerLinks, metadata: Metadata, deadlines: Deadlines) -> None:
        self.links = links
        self.deadlines = deadlines
        self._metadata = metadata
        self._questions: dict[TopicPartition, dict[_Question, None]] = {}

    def send(self, broker_id: BrokerId, message: AwaitMarkers, answered: OnAnswer) -> Cancel:
        """Ask a broker until nothing is left to wait for; ``answered(None)`` then, UNREACHABLE if it cannot say."""
        epochs = believed_leader_epochs(self._metadata.image, broker_id)
        question = _Question(self, broker_id, message, epochs, answered)
        self._questions.setdefault(message.partition, {})[question] = None
        question.ask()
        return question.end

    def is_awaited(self, partition: TopicPartition, producer_id: ProducerId) -> bool:
        return any(producer_id in question.awaited for question in self._questions.get(partition, ()))

    def marked(self, partition: TopicPartition, producer_id: ProducerId) -> None:
        """A marker is durable on a partition that this broker leads."""
        for question in list(self._questions.get(partition, ())):
            question.marked(producer_id)

    def ended(self, question: _Question) -> None:
        of_partition = self._questions.get(question.partition)
        if of_partition is not None and of_partition.pop(question, True) is None and not of_partition:
            del self._questions[question.partition]


class _Question:
    """One broker, asked about the producers that are still waited for."""

    def __init__(
        self,
        asker: AwaitedMarkers,
        broker_id: BrokerId,
        message: AwaitMarkers,
        epochs: dict[int, int],
        answered: OnAnswer,
    ) -> None:
        self.partition = message.partition
        self.awaited = set(message.producer_ids)
        self._asker = asker
        self._links = asker.links
        self._deadlines = asker.deadlines
        self._broker_id = broker_id
        self._epochs = epochs
        self._answered: OnAnswer | None = answered
        self._forget: Cancel | None = None
        self._alarm: Alarm | None = None
        self._delay_ms = FIRST_RETRY_MS

    def ask(self) -> None:
        """Ask which of the producers have a decided transaction."""
        message = ListTransactionsRequest(
            state_filters=list(_DECIDED),
            producer_id_filters=sorted(self.awaited) if len(self.awaited) <= MOST_FILTERED else [],
            led_partitions=list(self._epochs),
            leader_epochs=list(self._epochs.values()),
        )
        self._forget = self._links.request(self._broker_id, LinkPurpose.CONTROL, message, self._listed)

    def _listed(self, response: ListTransactionsResponse | None) -> None:
        self._forget = None
        if response is not None and response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._ask_later()
        elif response is None or response.error_code != ErrorCode.NONE or response.unknown_state_filters:
            self._end(UNREACHABLE)
        else:
            self.awaited &= {ProducerId(each.producer_id) for each in response.transaction_states}
            if self.awaited:
                self._ask_later()
            else:
                self._end(None)

    def _ask_later(self) -> None:
        self._alarm = self._deadlines.at(self._deadlines.now_ms + self._delay_ms, self._ask_again)
        self._delay_ms = min(2 * self._delay_ms, LONGEST_RETRY_MS)

    def _ask_again(self, _now_ms: int) -> None:
        self._alarm = None
        self.ask()

    def marked(self, producer_id: ProducerId) -> None:
        """The producer needs not be waited for: whatever was decided before the question has its marker."""
        self.awaited.discard(producer_id)
        if not self.awaited:
            self._end(None)

    def _end(self, answer: object) -> None:
        answered, self._answered = self._answered, None
        self.end()
        if answered is not None:
            answered(answer)

    def end(self) -> None:
        """Forget the answer: nobody waits for it any more."""
        self._answered = None
        self._asker.ended(self)
        if self._alarm is not None:
            self._deadlines.cancel(self._alarm)
        if self._forget is not None:
            self._forget()


_NOT_AT_REST: Final = tuple(STATE_NAMES[state] for state in sorted(STORED - AT_REST))


class TransactionalIds:
    """Asks every remote coordinator by ListTransactions for the ids of producers."""

    def __init__(self, links: BrokerLinks, metadata: Metadata) -> None:
        self._links = links
        self._metadata = metadata

    def send(self, broker_id: BrokerId, message: FindTransactionalIds, answered: OnAnswer) -> Cancel:
        epochs = believed_leader_epochs(self._metadata.image, broker_id)
        request = ListTransactionsRequest(
            state_filters=list(_NOT_AT_REST),
            producer_id_filters=sorted(message.producer_ids),
            led_partitions=list(epochs),
            leader_epochs=list(epochs.values()),
        )
        return self._links.request(broker_id, LinkPurpose.CONTROL, request, partial(_answered, answered))


def _answered(answered: OnAnswer, response: ListTransactionsResponse | None) -> None:
    if response is None or response.error_code != ErrorCode.NONE or response.unknown_state_filters:
        answered(UNREACHABLE)
        return
    answered(
        {ProducerId(each.producer_id): TransactionalId(each.transactional_id) for each in response.transaction_states}
    )
