"""Transactional ids a page at a time, by name, of coordinators that may have millions of them.

ListTransactions knows no pages: a coordinator answers with everything. The rule: of an answer only the page is kept.
Its ids are read one after another (``id_answers``), one coordinator is asked after another, and a page is named by the
id before it (or behind it), so that no page is dearer than the first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.admin.transactions.coordinators import unled_coordinators
from oncelog.admin.transactions.id_answers import IdAnswers, read_states
from oncelog.admin.transactions.told_once import ToldOnce
from oncelog.admin.transactions.transactional_ids import ListedTransaction, ListFilter
from oncelog.base.errors import PeerError
from oncelog.client.blocking.client import Client
from oncelog.wire.messages.list_transactions import TransactionState

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
    found.told.settle()
    listed = list(found.told.filter(listed))
    total = found.total - len(found.told.dropped)
    return IdPage(listed, total, ahead, found.unanswered + found.told.unanswered)


class _Found:
    """The ids of all coordinators, as they are read; the counts are right after the last."""

    def __init__(self, client: Client, wanted: ListFilter, after: str, before: str, answer_ms: int | None) -> None:
        self._client = client
        self._answers = IdAnswers(client, wanted, answer_ms)
        self._after = after
        self._before = before
        self.total = self.matching = 0
        self.unanswered = self._answers.unanswered
        self.unanswered += unled_coordinators(client)
        self.told = ToldOnce(client)

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
        reader = self._answers.of(broker)
        if reader is not None:
            try:
                for _, one in read_states(reader):
                    yield one
            except PeerError as error:
                self._answers.note(broker, str(error))
