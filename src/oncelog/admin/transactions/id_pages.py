"""Transactional ids of coordinators that may have millions of them: a page by name, or all in an order.

ListTransactions knows no pages: a coordinator answers with everything, and as objects the ids take forty times the
memory of the answer. Rules:

1. Ids are read one after another from the bytes that came. A coordinator that does not answer, or is too old for a
   filter, is noted, as in ``transactional_ids``.
2. A page keeps its own ids only. Coordinators are asked one after another, and a page is named by the id before it (or
   behind it), so that no page costs more than the first.
3. An order keeps the answers, and four bytes an id that say where it begins. Ids are sorted in runs of ``RUN`` and
   merged as they are read: no more than a run of them are objects at a time.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.admin.transactions.leadership import unled_coordinators
from oncelog.admin.transactions.told_once import ToldOnce
from oncelog.admin.transactions.transactional_ids import (
    LOADING_ATTEMPTS,
    ListedTransaction,
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

_Row = tuple[str, int, str, int]
_LEAST_BYTES = 11
"""Bytes of an id in an answer beside its name: two lengths, a producer id and the count of tags."""
RUN: Final = 20_000
Key = Callable[[ListedTransaction], Any]


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
