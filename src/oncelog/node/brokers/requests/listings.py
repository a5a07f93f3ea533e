"""Queries other coordinators with ListTransactions (KIP-664), either to wait for markers or to find transactional ids.

Tags of our own, which Apache Kafka ignores, name the partitions of ``__transaction_state`` that the receiver is
believed to lead, with their epochs. A broker that does not lead them in these epochs refuses: its list would be
incomplete.
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
"""Producers named in a request; for more, all decided transactions are listed."""
_DECIDED: Final = (STATE_NAMES[TransactionState.PREPARE_COMMIT], STATE_NAMES[TransactionState.PREPARE_ABORT])


def believed_leader_epochs(image: ClusterImage, broker_id: BrokerId) -> dict[int, int]:
    topic = image.topics.get(TRANSACTION_STATE)
    partitions = () if topic is None else topic.partitions
    return {
        index: partition.leader_epoch for index, partition in enumerate(partitions) if partition.leader == broker_id
    }


class AwaitedMarkers:
    """Waits for the markers of decided transactions, for which Kafka has no request.

    This broker leads the partition that the markers are written to and sees them itself; it only has to learn which
    transactions were decided before the query.
    """

    def __init__(self, links: BrokerLinks, metadata: Metadata, deadlines: Deadlines) -> None:
        self.links = links
        self.deadlines = deadlines
        self._metadata = metadata
        self._queries: dict[TopicPartition, dict[_MarkerQuery, None]] = {}

    def send(self, broker_id: BrokerId, message: AwaitMarkers, on_answer: OnAnswer) -> Cancel:
        """Query a broker until no marker is awaited. ``on_answer`` then gets None, or UNREACHABLE if the broker cannot
        say."""
        epochs = believed_leader_epochs(self._metadata.image, broker_id)
        query = _MarkerQuery(self, broker_id, message, epochs, on_answer)
        self._queries.setdefault(message.partition, {})[query] = None
        query.query()
        return query.end

    def is_awaited(self, partition: TopicPartition, producer_id: ProducerId) -> bool:
        return any(producer_id in query.awaited for query in self._queries.get(partition, ()))

    def marked(self, partition: TopicPartition, producer_id: ProducerId) -> None:
        """A marker is durable on a partition that this broker leads."""
        for query in list(self._queries.get(partition, ())):
            query.marked(producer_id)

    def ended(self, query: _MarkerQuery) -> None:
        waiting = self._queries.get(query.partition)
        if waiting is not None and waiting.pop(query, True) is None and not waiting:
            del self._queries[query.partition]


class _MarkerQuery:
    def __init__(
        self,
        owner: AwaitedMarkers,
        broker_id: BrokerId,
        message: AwaitMarkers,
        epochs: dict[int, int],
        on_answer: OnAnswer,
    ) -> None:
        self.partition = message.partition
        self.awaited = set(message.producer_ids)
        self._owner = owner
        self._links = owner.links
        self._deadlines = owner.deadlines
        self._broker_id = broker_id
        self._epochs = epochs
        self._on_answer: OnAnswer | None = on_answer
        self._forget: Cancel | None = None
        self._alarm: Alarm | None = None
        self._delay_ms = FIRST_RETRY_MS

    def query(self) -> None:
        message = ListTransactionsRequest(
            state_filters=list(_DECIDED),
            producer_id_filters=sorted(self.awaited) if len(self.awaited) <= MOST_FILTERED else [],
            led_partitions=list(self._epochs),
            leader_epochs=list(self._epochs.values()),
        )
        self._forget = self._links.request(self._broker_id, LinkPurpose.CONTROL, message, self._listed)

    def _listed(self, response: ListTransactionsResponse | None) -> None:
        # A producer that is no longer listed needs no marker: its marker may be older than the query, or its
        # transaction never wrote here.
        self._forget = None
        if response is not None and response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._query_later()
        elif response is None or response.error_code != ErrorCode.NONE or response.unknown_state_filters:
            self._end(UNREACHABLE)
        else:
            self.awaited &= {ProducerId(state.producer_id) for state in response.transaction_states}
            if self.awaited:
                self._query_later()
            else:
                self._end(None)

    def _query_later(self) -> None:
        self._alarm = self._deadlines.at(self._deadlines.now_ms + self._delay_ms, self._query_again)
        self._delay_ms = min(2 * self._delay_ms, LONGEST_RETRY_MS)

    def _query_again(self, _now_ms: int) -> None:
        self._alarm = None
        self.query()

    def marked(self, producer_id: ProducerId) -> None:
        """Stop waiting for a producer: every decision older than the query has its marker."""
        self.awaited.discard(producer_id)
        if not self.awaited:
            self._end(None)

    def _end(self, answer: object) -> None:
        on_answer, self._on_answer = self._on_answer, None
        self.end()
        if on_answer is not None:
            on_answer(answer)

    def end(self) -> None:
        self._on_answer = None
        self._owner.ended(self)
        if self._alarm is not None:
            self._deadlines.cancel(self._alarm)
        if self._forget is not None:
            self._forget()


_NOT_AT_REST: Final = tuple(STATE_NAMES[state] for state in sorted(STORED - AT_REST))


class TransactionalIds:
    """Finds the ids of producers that a leader knows by number only: the names were lost with their file or in a power
    cut. Any broker may be the coordinator, so each is queried. An error counts as no answer."""

    def __init__(self, links: BrokerLinks, metadata: Metadata) -> None:
        self._links = links
        self._metadata = metadata

    def send(self, broker_id: BrokerId, message: FindTransactionalIds, on_answer: OnAnswer) -> Cancel:
        epochs = believed_leader_epochs(self._metadata.image, broker_id)
        request = ListTransactionsRequest(
            state_filters=list(_NOT_AT_REST),
            producer_id_filters=sorted(message.producer_ids),
            led_partitions=list(epochs),
            leader_epochs=list(epochs.values()),
        )
        return self._links.request(broker_id, LinkPurpose.CONTROL, request, partial(_answered, on_answer))


def _answered(on_answer: OnAnswer, response: ListTransactionsResponse | None) -> None:
    if response is None or response.error_code != ErrorCode.NONE or response.unknown_state_filters:
        on_answer(UNREACHABLE)
        return
    on_answer(
        {
            ProducerId(state.producer_id): TransactionalId(state.transactional_id)
            for state in response.transaction_states
        }
    )
