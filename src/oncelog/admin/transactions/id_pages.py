"""Transactional ids a page at a time, by name, of coordinators that may have millions of them.

ListTransactions knows no pages: a coordinator answers with everything. The rule: of an answer only the page is kept.
Its ids are read one after another from the bytes that came, one coordinator is asked after another, and a page is named
by the id before it (or behind it), so that no page is dearer than the first. What ``list_transactions`` says of
coordinators that do not answer, or are too old for a filter, holds here, too.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.admin.transactions.transactional_ids import (
    LOADING_ATTEMPTS,
    ListedTransaction,
    ListFilter,
    list_question,
    refused_filter,
    too_old,
    unled_coordinators,
)
from oncelog.base.errors import ErrorCode, PeerError
from oncelog.client.blocking.client import Client
from oncelog.client.errors import BrokerRefused, ClientError, explain
from oncelog.wire.message import RESPONSE_MAX_ELEMENTS
from oncelog.wire.messages.list_transactions import ListTransactionsResponse, TransactionState
from oncelog.wire.reader import CompactReader

_LEAST_BYTES: Final = 11
"""Bytes of an id in an answer beside its name: two lengths, a producer id and the count of tags."""
_Row = tuple[str, int, str, int]


@dataclass(frozen=True, slots=True)
class IdPage:
    """Ids by name. ``total`` of them fulfil the filter, ``ahead`` of those come before the first of the page."""

    rows: list[ListedTransaction]
    total: int
    ahead: int
    unanswered: list[Unanswered] = field(default_factory=list)

    @property
    def has_more(self) -> bool:
        """True if there are ids behind the page."""
        return self.ahead + len(self.rows) < self.total


def page_of_ids(
    client: Client,
    wanted: ListFilter | None = None,
    *,
    count: int = 100,
    after: str = "",
    before: str = "",
    answer_ms: int | None = None,
) -> IdPage:
    """The ``count`` ids behind ``after``, or, where that is given, the last ones before ``before``. A coordinator has
    ``answer_ms`` to answer, by default what the client's settings say. Raises NoBrokerReachable, and BrokerRefused for
    a wrong filter."""
    if not client.view.brokers:
        client.retrying(client.refresh_brokers)
    found = _Found(client, wanted or ListFilter(), after, before, answer_ms)
    if before:
        rows = heapq.nlargest(count, found.rows())[::-1]
        ahead = found.matching - len(rows)
    else:
        rows = heapq.nsmallest(count, found.rows())
        ahead = found.total - found.matching
    listed = [ListedTransaction(name, producer_id, state, broker) for name, producer_id, state, broker in rows]
    return IdPage(listed, found.total, ahead, found.unanswered)


class _Found:
    """The ids of all coordinators, as they are read; the counts are right after the last."""

    def __init__(self, client: Client, wanted: ListFilter, after: str, before: str, answer_ms: int | None) -> None:
        self._client = client
        self._wanted = wanted
        self._after = after
        self._before = before
        self._answer_ms = answer_ms
        self.total = self.matching = 0
        self.unanswered = unled_coordinators(client)

    def rows(self) -> Iterator[_Row]:
        """The ids behind ``after``, or before ``before``, in no order."""
        after, before = self._after, self._before
        for broker in sorted(self._client.view.brokers):
            for one in self._of_broker(broker):
                self.total += 1
                name = one.transactional_id
                if name < before if before else name > after:
                    self.matching += 1
                    yield name, one.producer_id, one.transaction_state, broker

    def _of_broker(self, broker: int) -> Iterator[TransactionState]:
        """The ids of a coordinator; where it does not tell them, or not all of them, it is noted."""
        reason = too_old(self._client, broker, self._wanted)
        try:
            if reason is None:
                reader, head = self._answer(broker)
                if refused := refused_filter(head, self._wanted):
                    raise refused
                reason = explain(head.error_code) if head.error_code else None
                if reason is None:
                    yield from _read_states(reader)
        except BrokerRefused:
            raise
        except (PeerError, ClientError) as error:
            reason = str(error)
        if reason is not None:
            self.unanswered.append(Unanswered(broker, list_question(broker, self._wanted).what, reason))

    def _answer(self, broker: int) -> tuple[CompactReader, ListTransactionsResponse]:
        """An answer, read up to its ids; one that is loading is asked again. Raises ClientError and PeerError."""
        for attempt in range(LOADING_ATTEMPTS):
            link = self._client.link(broker)
            response = link.response(link.submit(list_question(broker, self._wanted).message), self._answer_ms)
            reader = CompactReader(response.body, RESPONSE_MAX_ELEMENTS)
            head = _read_head(reader)
            if head.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
            self._client.pause(attempt)
        return reader, head


def _read_head(reader: CompactReader) -> ListTransactionsResponse:
    """The fields before the ids. Raises PeerError."""
    head = ListTransactionsResponse(throttle_time_ms=reader.int32(), error_code=reader.int16())
    head.unknown_state_filters = reader.string_array()
    return head


def _read_states(reader: CompactReader) -> Iterator[TransactionState]:
    """The ids, one at a time. Raises PeerError."""
    for _ in range(reader.array_count(_LEAST_BYTES)):
        yield TransactionState.read(reader, ListTransactionsResponse.MAX_VERSION)
