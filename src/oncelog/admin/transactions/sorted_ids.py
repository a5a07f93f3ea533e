"""All transactional ids in an order, of coordinators that may have millions of them.

The rule: ids are kept as the bytes in which they came, and as four bytes that say where each begins. They are sorted in
runs of ``RUN`` and merged as they are read, so that no more than a run of them are objects at a time.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.admin.transactions.coordinators import unled_coordinators
from oncelog.admin.transactions.id_answers import IdAnswers, read_state, read_states
from oncelog.admin.transactions.transactional_ids import ListedTransaction, ListFilter
from oncelog.base.errors import PeerError
from oncelog.client.blocking.client import Client
from oncelog.wire.message import RESPONSE_MAX_ELEMENTS
from oncelog.wire.messages.list_transactions import TransactionState
from oncelog.wire.reader import CompactReader

RUN: Final = 20_000
Key = Callable[[ListedTransaction], Any]


class _Run(NamedTuple):
    """Ids of one coordinator's answer, by their places in it, in order."""

    broker: int
    body: memoryview
    places: array[int]

    def rows(self) -> Iterator[ListedTransaction]:
        reader = CompactReader(self.body, RESPONSE_MAX_ELEMENTS)
        for place in self.places:
            reader.position = place
            yield _row(read_state(reader), self.broker)


class SortedIds:
    """Ids in an order, to be gone through as often as is wanted. ``answered``: the coordinators that told theirs."""

    def __init__(self, key: Key, runs: list[_Run], unanswered: list[Unanswered], answered: int) -> None:
        self._key = key
        self._runs = runs
        self.unanswered = unanswered
        self.answered = answered

    def __len__(self) -> int:
        return sum(len(one.places) for one in self._runs)

    def __iter__(self) -> Iterator[ListedTransaction]:
        return heapq.merge(*(one.rows() for one in self._runs), key=self._key)


def by_id(one: ListedTransaction) -> str:
    """The order of ids by name."""
    return one.transactional_id


def sorted_ids(
    client: Client,
    wanted: ListFilter | None = None,
    *,
    coordinators: Iterable[int] | None = None,
    key: Key = by_id,
) -> SortedIds:
    """Ids of all brokers or those named, as ``list_transactions`` has them. Raises NoBrokerReachable, and BrokerRefused
    for a wrong filter."""
    if not client.view.brokers:
        client.retrying(client.refresh_brokers)
    answers = IdAnswers(client, wanted or ListFilter())
    if coordinators is None:
        answers.unanswered += unled_coordinators(client)
    runs: list[_Run] = []
    answered = 0
    for broker in sorted(client.view.brokers if coordinators is None else set(coordinators)):
        reader = answers.of(broker)
        if reader is None:
            continue
        try:
            runs += list(_runs_of(broker, reader, key))
            answered += 1
        except PeerError as error:
            answers.note(broker, str(error))
    return SortedIds(key, runs, answers.unanswered, answered)


def _runs_of(broker: int, reader: CompactReader, key: Key) -> Iterator[_Run]:
    """The runs of an answer. Raises PeerError."""
    waiting: list[tuple[Any, int]] = []
    for place, one in read_states(reader):
        waiting.append((key(_row(one, broker)), place))
        if len(waiting) == RUN:
            yield _run(broker, reader, waiting)
            waiting.clear()
    if waiting:
        yield _run(broker, reader, waiting)


def _run(broker: int, reader: CompactReader, waiting: list[tuple[Any, int]]) -> _Run:
    waiting.sort()
    return _Run(broker, reader.view, array("I", (place for _, place in waiting)))


def _row(one: TransactionState, broker: int) -> ListedTransaction:
    return ListedTransaction(one.transactional_id, one.producer_id, one.transaction_state, broker)
