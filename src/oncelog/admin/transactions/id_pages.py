"""Reads transactional ids from coordinators that may have millions: one page by name, or all in an order."""

# ListTransactions has no pages: a coordinator answers with all ids, which take forty times the memory as objects.
# Rules:
#
# 1. Ids are read one by one from the received bytes. A coordinator that does not answer, or is too old for a filter,
#    is reported as in ``transactional_ids``.
# 2. A page keeps only its own ids, and is addressed by the id before or after it, so every page costs the same.
# 3. An order keeps the answers, plus four bytes per id with its place in them. Ids are sorted in runs of ``RUN`` and
#    merged while they are read: at most one run exists as objects at a time.

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.admin.transactions.leadership import unled_coordinators
from oncelog.admin.transactions.transactional_ids import (
    IDS_PER_REQUEST,
    LOADING_ATTEMPTS,
    ListFilter,
    describe_transactions,
    list_question,
    refused_filter,
    too_old,
)
from oncelog.admin.transactions.unique_ids import ListedTransaction, UniqueIdFilter, has_repeated
from oncelog.base.errors import ErrorCode, PeerError
from oncelog.client.errors import BrokerRefused, ClientError, explain
from oncelog.client.programs import Cluster, Program, operation
from oncelog.client.programs.steps import Call
from oncelog.wire.message import RESPONSE_MAX_ELEMENTS
from oncelog.wire.messages.list_transactions import ListTransactionsResponse, TransactionState
from oncelog.wire.reader import CompactReader

_Row = tuple[str, int, str, int]
_MIN_ID_BYTES = 11
"""The size of an id in an answer without its name: two lengths, a producer id and the tag count."""
RUN: Final = 20_000
Key = Callable[[ListedTransaction], Any]


@dataclass(frozen=True, slots=True)
class IdPage:
    """Ids by name. ``total`` of them match the filter; ``ahead`` of those precede the page."""

    rows: list[ListedTransaction]
    total: int
    ahead: int
    unanswered: list[Unanswered] = field(default_factory=list)

    @property
    def has_more(self) -> bool:
        return self.ahead + len(self.rows) < self.total


@operation
def page_of_ids(
    cluster: Cluster,
    filters: ListFilter | None = None,
    *,
    count: int = 100,
    after: str = "",
    before: str = "",
    answer_ms: int | None = None,
) -> Program[IdPage]:
    """The ``count`` ids after ``after``, or the last ones before ``before`` if given. ``answer_ms`` is a coordinator's
    time to answer. Raises NoBrokerReachable, and BrokerRefused for an invalid filter."""
    if not cluster.view.brokers:
        yield from cluster.retrying(cluster.refresh_brokers)
    answers = IdAnswers(cluster, filters or ListFilter(), answer_ms)
    answers.unanswered += yield from unled_coordinators(cluster)
    unique = UniqueIdFilter(cluster)
    page = _Page(count, after, before)
    for broker in sorted(cluster.view.brokers):
        reader = yield from answers.of(broker)
        if reader is not None:
            page.add(broker, reader, answers.note)
    yield from unique.settle()
    listed = [ListedTransaction(name, producer_id, state, broker) for name, producer_id, state, broker in page.rows]
    listed = list(unique.filter(listed))
    return IdPage(listed, page.total - len(unique.dropped), page.ahead, answers.unanswered + unique.unanswered)


class _Page:
    """The rows of a page from the answers added so far; nothing else of an answer is kept."""

    def __init__(self, count: int, after: str, before: str) -> None:
        self._count = count
        self._after = after
        self._before = before
        self._matching = 0
        self.total = 0
        self.rows: list[_Row] = []

    @property
    def ahead(self) -> int:
        return self._matching - len(self.rows) if self._before else self.total - self._matching

    def add(self, broker: int, reader: CompactReader, note: Callable[[int, str], None]) -> None:
        """Read a coordinator's answer; ``note`` gets the reason if it ends early."""
        candidates = chain(self.rows, self._matching_rows(broker, reader, note))
        if self._before:
            self.rows = heapq.nlargest(self._count, candidates)[::-1]
        else:
            self.rows = heapq.nsmallest(self._count, candidates)

    def _matching_rows(self, broker: int, reader: CompactReader, note: Callable[[int, str], None]) -> Iterator[_Row]:
        after, before = self._after, self._before
        try:
            for _, state in read_states(reader):
                self.total += 1
                name = state.transactional_id
                if name < before if before else name > after:
                    self._matching += 1
                    yield name, state.producer_id, state.transaction_state, broker
        except PeerError as error:
            note(broker, str(error))


class IdAnswers:
    """Queries coordinators for their ids; ``unanswered`` lists those with missing ids."""

    def __init__(self, cluster: Cluster, filters: ListFilter, answer_ms: int | None = None) -> None:
        self._cluster = cluster
        self._filters = filters
        self._answer_ms = answer_ms
        self.unanswered: list[Unanswered] = []

    def of(self, broker: int) -> Program[CompactReader | None]:
        """A coordinator's answer, read up to its ids; None, with a row in ``unanswered``, without one. Raises
        BrokerRefused for an invalid filter."""
        reason = yield from too_old(self._cluster, broker, self._filters)
        if reason is None:
            try:
                reader, head = yield from self._answer(broker)
                if refused := refused_filter(head, self._filters):
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
        """Record that a coordinator's ids are incomplete."""
        self.unanswered.append(Unanswered(broker, list_question(broker, self._filters).subject, reason))

    def _answer(self, broker: int) -> Program[tuple[CompactReader, ListTransactionsResponse]]:
        """An answer; a coordinator that is loading is queried again. Raises ClientError and PeerError."""
        for attempt in range(LOADING_ATTEMPTS):
            link = yield from self._cluster.link(broker)
            message = list_question(broker, self._filters).message
            body = yield Call(link, message, timeout_ms=self._answer_ms, read=lambda response: response.body)
            reader = CompactReader(body, RESPONSE_MAX_ELEMENTS)
            head = ListTransactionsResponse(throttle_time_ms=reader.int32(), error_code=reader.int16())
            head.unknown_state_filters = reader.string_array()
            if head.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
            yield from self._cluster.pause(attempt)
        return reader, head


def read_states(reader: CompactReader) -> Iterator[tuple[int, TransactionState]]:
    """The ids, each with its place in the answer. Raises PeerError."""
    for _ in range(reader.array_count(_MIN_ID_BYTES)):
        place = reader.position
        yield place, read_state(reader)


def read_state(reader: CompactReader) -> TransactionState:
    """The id at the reader's position. Raises PeerError."""
    return TransactionState.read(reader, ListTransactionsResponse.MAX_VERSION)


class _Run(NamedTuple):
    """Ids of one coordinator's answer in order, as places in it."""

    broker: int
    body: memoryview
    places: array[int]

    def rows(self) -> Iterator[ListedTransaction]:
        reader = CompactReader(self.body, RESPONSE_MAX_ELEMENTS)
        for place in self.places:
            reader.position = place
            yield _row(read_state(reader), self.broker)


class SortedIds:
    """Ids in an order, iterable any number of times. ``answered`` counts the coordinators that answered."""

    def __init__(self, key: Key, runs: list[_Run], unanswered: list[Unanswered], answered: int) -> None:
        self._key = key
        self._runs = runs
        self.unanswered = unanswered
        self.answered = answered

    def __len__(self) -> int:
        return sum(len(run.places) for run in self._runs)

    def __iter__(self) -> Iterator[ListedTransaction]:
        return heapq.merge(*(run.rows() for run in self._runs), key=self._key)


def by_id(row: ListedTransaction) -> str:
    return row.transactional_id


@operation
def sorted_ids(
    cluster: Cluster,
    filters: ListFilter | None = None,
    *,
    coordinators: Iterable[int] | None = None,
    key: Key = by_id,
) -> Program[SortedIds]:
    """Ids of all brokers or those in ``coordinators``. Raises NoBrokerReachable, and BrokerRefused for an invalid
    filter."""
    if not cluster.view.brokers:
        yield from cluster.retrying(cluster.refresh_brokers)
    answers = IdAnswers(cluster, filters or ListFilter())
    if coordinators is None:
        answers.unanswered += yield from unled_coordinators(cluster)
    unique = UniqueIdFilter(cluster)
    runs: list[_Run] = []
    answered = 0
    for broker in sorted(cluster.view.brokers if coordinators is None else set(coordinators)):
        reader = yield from answers.of(broker)
        if reader is None:
            continue
        try:
            runs += list(_runs_of(broker, reader, by_id))
            answered += 1
        except PeerError as error:
            answers.note(broker, str(error))
    by_name = SortedIds(by_id, runs, answers.unanswered, answered)
    if coordinators is None or (answered > 1 and has_repeated(by_name)):
        yield from unique.settle()
    if answered > 1:
        # A first pass in the order of ids finds those to drop.
        for _ in unique.filter(by_name):
            pass
    answers.unanswered += unique.unanswered
    if key is not by_id or unique.dropped:
        runs = [resorted for run in runs for resorted in _sorted_again(run, key, unique.dropped)]
    return SortedIds(key, runs, answers.unanswered, answered)


@dataclass(frozen=True, slots=True)
class IdWithEpoch:
    """The epoch is None if it is unknown."""

    transactional_id: str
    producer_id: int
    producer_epoch: int | None
    state: str
    coordinator: int


@operation
def epochs_of(cluster: Cluster, ids: Iterable[ListedTransaction]) -> Program[array[int]]:
    """In the order of ``ids``; −1: unknown."""
    # A list has no epochs: each id is described.
    epochs = array("i")
    stream = iter(ids)
    while rows := list(islice(stream, IDS_PER_REQUEST)):
        coordinators = {row.transactional_id: row.coordinator for row in rows}
        described = yield from describe_transactions(cluster, coordinators, coordinators=coordinators)
        for row in rows:
            detail = described.rows.get(row.transactional_id)
            is_same = detail is not None and detail.producer_id == row.producer_id
            epochs.append(detail.producer_epoch if detail is not None and is_same else -1)
    return epochs


def with_epochs(ids: Iterable[ListedTransaction], epochs: Iterable[int]) -> Iterator[IdWithEpoch]:
    for row, epoch in zip(ids, epochs, strict=True):
        current = epoch if epoch >= 0 else None
        yield IdWithEpoch(row.transactional_id, row.producer_id, current, row.state, row.coordinator)


def _runs_of(broker: int, reader: CompactReader, key: Key) -> Iterator[_Run]:
    """The runs of an answer. Raises PeerError."""
    return _sorted_runs(broker, reader.view, read_states(reader), key)


def _sorted_again(run: _Run, key: Key, dropped: Container[tuple[str, int]]) -> Iterator[_Run]:
    """A run in another order, without dropped ids."""
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
    for place, state in states:
        waiting.append((key(_row(state, broker)), place))
        if len(waiting) == RUN:
            yield _run(broker, body, waiting)
            waiting.clear()
    if waiting:
        yield _run(broker, body, waiting)


def _run(broker: int, body: memoryview, waiting: list[tuple[Any, int]]) -> _Run:
    waiting.sort()
    return _Run(broker, body, array("I", (place for _, place in waiting)))


def _row(state: TransactionState, broker: int) -> ListedTransaction:
    return ListedTransaction(state.transactional_id, state.producer_id, state.transaction_state, broker)
