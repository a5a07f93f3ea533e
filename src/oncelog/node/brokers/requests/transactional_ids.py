"""The transactional ids of producers whose transactions other brokers coordinate, by ListTransactions (KIP-664).

A leader knows a producer by number where the name that came with its records was lost: with the file of names, or in a
power cut. Its coordinator may be any broker, so all are asked, each for the open and the decided transactions of these
producers. An error, and the answer of a broker that does not lead what it is believed to lead, are no answer.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import BrokerId, ProducerId, TransactionalId
from oncelog.core.transactions.states import AT_REST, STATE_NAMES, STORED
from oncelog.node.brokers.broker_links import BrokerLinks, LinkPurpose
from oncelog.node.brokers.messages import UNREACHABLE, Answered, FindTransactionalIds, Forget
from oncelog.node.brokers.requests.believed_leaders import believed_leader_epochs
from oncelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from oncelog.node.cluster.metadata import Metadata

_NOT_AT_REST: Final = tuple(STATE_NAMES[state] for state in sorted(STORED - AT_REST))


class TransactionalIds:
    """Asks every remote coordinator by ListTransactions for the ids of producers."""

    def __init__(self, links: BrokerLinks, metadata: Metadata) -> None:
        self._links = links
        self._metadata = metadata

    def send(self, broker_id: BrokerId, message: FindTransactionalIds, answered: Answered) -> Forget:
        """Ask a broker."""
        epochs = believed_leader_epochs(self._metadata.image, broker_id)
        request = ListTransactionsRequest(
            state_filters=list(_NOT_AT_REST),
            producer_id_filters=sorted(message.producer_ids),
            led_partitions=list(epochs),
            leader_epochs=list(epochs.values()),
        )
        return self._links.request(broker_id, LinkPurpose.CONTROL, request, partial(_answered, answered))


def _answered(answered: Answered, response: ListTransactionsResponse | None) -> None:
    if response is None or response.error_code != ErrorCode.NONE or response.unknown_state_filters:
        answered(UNREACHABLE)
        return
    answered(
        {ProducerId(each.producer_id): TransactionalId(each.transactional_id) for each in response.transaction_states}
    )
