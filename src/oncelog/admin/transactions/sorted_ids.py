"""All transactional ids in an order, of coordinators that may have millions of them.

The rule: ids are kept as the bytes in which they came, and as four bytes that say where each begins. They are sorted in
runs of ``RUN`` and merged as they are read, so that no more than a run of them are objects at a time.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any, Final, NamedTuple

from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.admin.transactions.coordinators import unled_coordinators
from oncelog.admin.transactions.id_answers import IdAnswers, read_state, read_states
from oncelog.admin.transactions.told_once import ToldOnce
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
    told = ToldOnce(client)
    runs: list[_Run] = []
    answered = 0
    for broker in sorted(client.view.brokers if coordinators is None else set(coordinators)):
        reader = answers.of(broker)
        if reader is None:
            continue
        try:
            runs += list(_runs_of(broker, reader, by_id))
            answered += 1
        except PeerError as error:
            answers.note(broker, str(error))
    if coordinators is None:
        told.settle()
    found = SortedIds(by_id, runs, answers.unanswered, answered)
    if answered > 1:
        for _ in told.filter(found):
            pass
    answers.unanswered += told.unanswered
    if key is not by_id or told.dropped:
        runs = [again for run in runs for again in _sorted_again(run, key, told.dropped)]
    return SortedIds(key, runs, answers.unanswered, answered)


def _runs_of(broker: int, reader: CompactReader, key: Key) -> Iterator[_Run]:
    """The runs of an answer. Raises PeerError."""
    return _sorted_runs(broker, reader.view, read_states(reader), key)


def _sorted_again(run: _Run, key: Key, dropped: Container[tuple[str, int]]) -> Iterator[_Run]:
    """A run in another order, without some ids."""
    reader = CompactReader(run.body, RESPONSE_MAX_ELEMENTS)

    def states() -> Iterator[tuple[int, TransactionState]]:
        for place in run.places:
            reader.position = place
            state = read_state(reader)
            if (state.transactional_id, run.broker) not in dropped:
                yield place, state

    return _sorted_runs(run.broker, run.body, states(), key)


def _sorted_runs(
    broker: int, body: memoryview, states: Iterable[tuple[int, TransactionState]], key: Key
) -> Iterator[_Run]:
    waiting: list[tuple[Any, int]] = []
    for place, one in states:
        waiting.append((key(_row(one, broker)), place))
        if len(waiting) == RUN:
            yield _run(broker, body, waiting)
            waiting.clear()
    if waiting:
        yield _run(broker, body, waiting)


def _run(broker: int, body: memoryview, waiting: list[tuple[Any, int]]) -> _Run:
    waiting.sort()
    return _Run(broker, body, array("I", (place for _, place in waiting)))


def _row(one: TransactionState, broker: int) -> ListedTransaction:
    return ListedTransaction(one.transactional_id, one.producer_id, one.transaction_state, broker)
