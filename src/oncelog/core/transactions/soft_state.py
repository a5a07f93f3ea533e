"""Soft state of a transaction shard: deadlines, pending transitions, parked requests, outstanding markers.

None of it is in the log. After a restart every prepared transaction sends all its markers again, and the leaders
recognise a marker they have.

*Pending transitions* are decided and not applied yet (invariant X7). A request for an id that has one waits, because
neither the state before nor the state after it is certain yet.

*Parked requests* wait for a transaction to complete ("wait, don't refuse"). A client that gets CONCURRENT_TRANSACTIONS
sleeps, usually 20 ms or more, while markers take a fraction of that. So a request that meets a transaction between
Prepare and Complete is parked under its token, becomes *ready* when the transaction has completed, is decided again,
and is refused only when its deadline passes. A request keeps its deadline when it is parked again. Invariant X8: a
token is in one place at most.

*Outstanding markers* are the partitions of a prepared transaction that lack theirs. Before Transactions V2 consecutive
transactions of an id share their identity, so each set of markers has a *number*, and a late report about an earlier
transaction's cannot complete a later one.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CoordinatorEpoch, TopicPartition, TransactionalId
from oncelog.base.invariant import invariant
from oncelog.base.timers import Timers as Deadlines
from oncelog.core.transactions.model import MarkersToWrite, Reply, TransactionRequest, refusal_of
from oncelog.core.transactions.states import TransactionState
from oncelog.core.transactions.transitions import Transaction


class TimerKind(IntEnum):
    """The kinds of deadlines."""

    TIME_OUT = 0
    PARKED = 1
    COMPLETE = 2
    EXPIRY = 3


class TimerKey(NamedTuple):
    """Names one deadline: TIME_OUT and COMPLETE by transactional id, PARKED by token."""

    kind: TimerKind
    transactional_id: str = ""
    token: int = 0


Timers = Deadlines[TimerKey]


class PendingTransition(NamedTuple):
    """A transition: the value of its record (None: a tombstone), and the transaction it makes."""

    value: bytes | None
    transaction: Transaction | None


class PendingTransitions:
    """Pending transitions by transactional id, in the order in which they were decided."""

    def __init__(self) -> None:
        self._pending: dict[TransactionalId, deque[PendingTransition]] = {}

    def __contains__(self, transactional_id: TransactionalId) -> bool:
        return transactional_id in self._pending

    def decided(self, transactional_id: TransactionalId, value: bytes | None, transaction: Transaction | None) -> None:
        self._pending.setdefault(transactional_id, deque()).append(PendingTransition(value, transaction))

    def confirm(self, transactional_id: TransactionalId, value: bytes | None) -> PendingTransition:
        """Take out the oldest transition of an id, whose record is in the log now; it must be ``value`` (X7)."""
        pending = self._pending.get(transactional_id, deque())
        invariant(pending, "X7: applied without a decision", transactional_id=transactional_id)
        decided = pending.popleft()
        if not pending:
            del self._pending[transactional_id]
        invariant(decided.value == value, "X7: applied is not what was decided", transactional_id=transactional_id)
        return decided

    def drop(self, transactional_id: TransactionalId) -> None:
        """Drop the transitions of an id whose records could not be appended."""
        self._pending.pop(transactional_id, None)

    def clear(self) -> None:
        self._pending.clear()


class ParkedRequest(NamedTuple):
    """A request, decided anew each time its transaction completes, and the token that its reply goes to."""

    token: int
    request: TransactionRequest

    @property
    def transactional_id(self) -> TransactionalId:
        return self.request.transactional_id

    def refused(self, error_code: ErrorCode) -> tuple[int, Reply]:
        return self.token, refusal_of(self.request, error_code)


class Parking:
    """The requests that wait, by transactional id, in order of arrival.

    One AddPartitionsToTxn may bring tens of thousands of entries, which all wait for the same transaction and time out
    at once: no method here searches through the parked requests.
    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._parked: dict[TransactionalId, dict[int, ParkedRequest]] = {}
        """Parked requests by token, in order of arrival."""
        self._ready: OrderedDict[int, ParkedRequest] = OrderedDict()
        self._waits_for: dict[int, TransactionalId] = {}
        """The transaction that each parked token waits for."""

    def __iter__(self) -> Iterator[ParkedRequest]:
        yield from self._ready.values()
        for parked in self._parked.values():
            yield from parked.values()

    def park(self, waiting: ParkedRequest, deadline_ms: int) -> None:
        """Park a request until ``deadline_ms``, or the deadline it has already."""
        self._parked.setdefault(waiting.transactional_id, {})[waiting.token] = waiting
        self._waits_for[waiting.token] = waiting.transactional_id
        key = TimerKey(TimerKind.PARKED, token=waiting.token)
        if self._timers.deadline_of(key) is None:
            self._timers.schedule(key, deadline_ms)

    def make_ready(self, transactional_id: TransactionalId) -> None:
        """Make the requests ready that wait for a transaction, which has completed."""
        for token, waiting in self._parked.pop(transactional_id, {}).items():
            del self._waits_for[token]
            self._ready[token] = waiting

    def has_ready(self) -> bool:
        return bool(self._ready)

    def next_ready(self) -> ParkedRequest:
        """Take out the request that has been ready longest; its deadline still runs."""
        _, waiting = self._ready.popitem(last=False)
        return waiting

    def answered(self, token: int) -> None:
        """Cancel the deadline of a request that was answered."""
        self._timers.cancel(TimerKey(TimerKind.PARKED, token=token))

    def remove(self, token: int) -> ParkedRequest | None:
        """Take out a request, parked or ready, and cancel its deadline; None if it is neither."""
        self.answered(token)
        transactional_id = self._waits_for.pop(token, None)
        if transactional_id is None:
            return self._ready.pop(token, None)
        parked = self._parked[transactional_id]
        request = parked.pop(token)
        if not parked:
            del self._parked[transactional_id]
        return request

    def clear(self, error_code: ErrorCode) -> list[tuple[int, Reply]]:
        """Refuse all requests with ``error_code``."""
        refused = [waiting.refused(error_code) for waiting in self]
        for token, _ in refused:
            self.answered(token)
        self._parked.clear()
        self._waits_for.clear()
        self._ready.clear()
        return refused

    def is_parked(self, transactional_id: TransactionalId) -> bool:
        """True if a request is parked for the transaction (ready ones do not count)."""
        return transactional_id in self._parked


class OutstandingMarkers:
    """The markers of one shard, under one coordinator epoch."""

    def __init__(self, coordinator_epoch: CoordinatorEpoch) -> None:
        self._coordinator_epoch = coordinator_epoch
        self._awaited: dict[TransactionalId, dict[TopicPartition, None]] = {}
        self._numbers: dict[TransactionalId, int] = {}
        self._last_number = 0

    def to_write(self, prepared: Transaction) -> MarkersToWrite:
        """The markers to send for a decided transaction."""
        self._last_number += 1
        self._numbers[prepared.transactional_id] = self._last_number
        return MarkersToWrite(
            prepared.transactional_id,
            prepared.identity,
            self._coordinator_epoch,
            prepared.state is TransactionState.PREPARE_COMMIT,
            prepared.partitions,
            prepared.client_version,
            self._last_number,
        )

    def begin(self, prepared: Transaction) -> None:
        """Await the markers of all partitions of a transaction whose decision is applied."""
        self._awaited[prepared.transactional_id] = dict.fromkeys(prepared.partitions)

    def forget(self, transactional_id: TransactionalId) -> bool:
        """Drop the markers of a transaction that is no longer prepared; True if it had any."""
        self._numbers.pop(transactional_id, None)
        return self._awaited.pop(transactional_id, None) is not None

    def are_current(self, markers: MarkersToWrite) -> bool:
        """True if a report about ``markers`` is about the present transaction and coordinator epoch."""
        return (
            self._numbers.get(markers.transactional_id) == markers.number
            and markers.coordinator_epoch == self._coordinator_epoch
            and markers.transactional_id in self._awaited
        )

    def settle(self, transactional_id: TransactionalId, partitions: Iterable[TopicPartition]) -> bool:
        """Note that partitions need no marker any more; True if these were the last."""
        awaited = self._awaited[transactional_id]
        had_any = bool(awaited)
        for partition in partitions:
            awaited.pop(partition, None)
        return had_any and not awaited

    def awaiting_any(self, partitions: Collection[TopicPartition]) -> list[TransactionalId]:
        return [tid for tid, awaited in self._awaited.items() if not awaited.keys().isdisjoint(partitions)]

    def awaited(self, transactional_id: TransactionalId) -> tuple[TopicPartition, ...] | None:
        """The partitions without a marker; None when the transaction is not prepared."""
        awaited = self._awaited.get(transactional_id)
        return None if awaited is None else tuple(awaited)

    def count(self) -> int:
        return sum(map(len, self._awaited.values()))

    def clear(self) -> None:
        """Forget everything."""
        self._awaited.clear()
        self._numbers.clear()
