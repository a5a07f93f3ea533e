"""Answers of coordinators with all their transactional ids, read one id at a time from the bytes that came.

ListTransactions knows no pages, and a coordinator may have millions of ids: as objects they take forty times what they
take in the answer. The rule: nothing here keeps an id. A coordinator that does not answer, or is too old for a filter,
is noted, as in ``transactional_ids``.
"""

from __future__ import annotations

from collections.abc import Iterator

from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.admin.transactions.transactional_ids import (
    LOADING_ATTEMPTS,
    ListFilter,
    list_question,
    refused_filter,
    too_old,
)
from oncelog.base.errors import ErrorCode, PeerError
from oncelog.client.blocking.client import Client
from oncelog.client.errors import BrokerRefused, ClientError, explain
from oncelog.wire.message import RESPONSE_MAX_ELEMENTS
from oncelog.wire.messages.list_transactions import ListTransactionsResponse, TransactionState
from oncelog.wire.reader import CompactReader

_LEAST_BYTES = 11
"""Bytes of an id in an answer beside its name: two lengths, a producer id and the count of tags."""


class IdAnswers:
    """Asks coordinators for their ids; ``unanswered`` has those that do not tell them, or not all of them."""

    def __init__(self, client: Client, wanted: ListFilter, answer_ms: int | None = None) -> None:
        self._client = client
        self._wanted = wanted
        self._answer_ms = answer_ms
        self.unanswered: list[Unanswered] = []

    def of(self, broker: int) -> CompactReader | None:
        """A coordinator's answer, read up to its ids; None, and a note, where there is none. Raises BrokerRefused for
        a wrong filter."""
        reason = too_old(self._client, broker, self._wanted)
        if reason is None:
            try:
                reader, head = self._answer(broker)
                if refused := refused_filter(head, self._wanted):
                    raise refused
                if not head.error_code:
                    return reader
                reason = explain(head.error_code)
            except BrokerRefused:
                raise
            except (PeerError, ClientError) as error:
                reason = str(error)
        self.note(broker, reason)
        return None

    def note(self, broker: int, reason: str) -> None:
        """Note that a coordinator has not told all of its ids."""
        self.unanswered.append(Unanswered(broker, list_question(broker, self._wanted).what, reason))

    def _answer(self, broker: int) -> tuple[CompactReader, ListTransactionsResponse]:
        """An answer; one that is loading is asked again. Raises ClientError and PeerError."""
        for attempt in range(LOADING_ATTEMPTS):
            link = self._client.link(broker)
            response = link.response(link.submit(list_question(broker, self._wanted).message), self._answer_ms)
            reader = CompactReader(response.body, RESPONSE_MAX_ELEMENTS)
            head = ListTransactionsResponse(throttle_time_ms=reader.int32(), error_code=reader.int16())
            head.unknown_state_filters = reader.string_array()
            if head.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
            self._client.pause(attempt)
        return reader, head


def read_states(reader: CompactReader) -> Iterator[tuple[int, TransactionState]]:
    """The ids, each with its place in the answer. Raises PeerError."""
    for _ in range(reader.array_count(_LEAST_BYTES)):
        place = reader.position
        yield place, read_state(reader)


def read_state(reader: CompactReader) -> TransactionState:
    """The id at the reader's position. Raises PeerError."""
    return TransactionState.read(reader, ListTransactionsResponse.MAX_VERSION)
