"""Soft state of a transaction shard: deadlines, pending transitions, parked requests, outstanding markers."""

# None of it is in the log. After a restart every prepared transaction sends all its markers again, and leaders
# recognise markers they already have. docs/internals/transactions.md has the invariants, X7 to X12.
#
# Requests are parked because a client that gets CONCURRENT_TRANSACTIONS sleeps, usually for 20 ms or more, while
# markers take a fraction of that.

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import CoordinatorEpoch, TopicPartition, TransactionalId
from oncelog.base.invariant import invariant
from oncelog.base.timers import Timers as Deadlines
from oncelog.core.transactions.model import MarkersToWrite, Reply, TransactionRequest, refusal_of
from oncelog.core.transactions.states import TransactionState
from oncelog.core.transactions.transitions import Transaction


class TimerKind(IntEnum):
    TIME_OUT = 0
    PARKED = 1
    COMPLETE = 2
    EXPIRY = 3


class TimerKey(NamedTuple):
    """The key of a deadline: TIME_OUT and COMPLETE by transactional id, PARKED by token."""

    kind: TimerKind
    transactional_id: str = ""
    token: int = 0


Timers = Deadlines[TimerKey]


class PendingTransition(NamedTuple):
    """The value of a transition's record (None: a tombstone), and the resulting transaction."""

    value: bytes | None
    transaction: Transaction | None


class PendingTransitions:
    def __init__(self) -> None:
        self._pending: dict[TransactionalId, deque[PendingTransition]] = {}

    def __contains__(self, transactional_id: TransactionalId) -> bool:
        return transactional_id in self._pending

    def decided(self, transactional_id: TransactionalId, value: bytes | None, transaction: Transaction | None) -> None:
        self._pending.setdefault(transactional_id, deque()).append(PendingTransition(value, transaction))

    def confirm(self, transactional_id: TransactionalId, value: bytes | None) -> PendingTransition:
        """Remove an id's oldest transition, whose record ``value`` is now in the log (X7)."""
        pending = self._pending.get(transactional_id, deque())
        invariant(pending, "X7: applied without a decision", transactional_id=transactional_id)
        decided = pending.popleft()
        if not pending:
            del self._pending[transactional_id]
        invariant(decided.value == value, "X7: the applied record was not decided", transactional_id=transactional_id)
        return decided

    def drop(self, transactional_id: TransactionalId) -> None:
        self._pending.pop(transactional_id, None)

    def clear(self) -> None:
        self._pending.clear()


class ParkedRequest(NamedTuple):
    """A request, decided again each time its transaction completes, and its token."""

    token: int
    request: TransactionRequest

    @property
    def transactional_id(self) -> TransactionalId:
        return self.request.transactional_id

    def refused(self, error_code: ErrorCode) -> tuple[int, Reply]:
        return self.token, refusal_of(self.request, error_code)


class Parking:
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

    # One AddPartitionsToTxn may have tens of thousands of entries that wait for the same transaction and time out
    # together: no method searches the parked requests.
    def park(self, waiting: ParkedRequest, deadline_ms: int) -> None:
        """Park a request until ``deadline_ms``, or until its existing deadline."""
        self._parked.setdefault(waiting.transactional_id, {})[waiting.token] = waiting
        self._waits_for[waiting.token] = waiting.transactional_id
        key = TimerKey(TimerKind.PARKED, token=waiting.token)
        # A request parked again keeps its first deadline.
        if self._timers.deadline_of(key) is None:
            self._timers.schedule(key, deadline_ms)

    def make_ready(self, transactional_id: TransactionalId) -> None:
        for token, waiting in self._parked.pop(transactional_id, {}).items():
            del self._waits_for[token]
            self._ready[token] = waiting

    def has_ready(self) -> bool:
        return bool(self._ready)

    def next_ready(self) -> ParkedRequest:
        """Remove and return the request that has been ready longest; its deadline keeps running."""
        _, waiting = self._ready.popitem(last=False)
        return waiting

    def answered(self, token: int) -> None:
        self._timers.cancel(TimerKey(TimerKind.PARKED, token=token))

    def remove(self, token: int) -> ParkedRequest | None:
        """Remove a parked or ready request and its deadline."""
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


class LastClients:
    """Client ids and hosts."""

    MAX_IDS: Final = 10_000
    MAX_CHARS: Final = 200

    def __init__(self) -> None:
        self._clients: dict[TransactionalId, tuple[str, str]] = {}

    def remember(self, transactional_id: TransactionalId, client_id: str, host: str) -> None:
        self._clients.pop(transactional_id, None)
        if len(self._clients) >= self.MAX_IDS:
            del self._clients[next(iter(self._clients))]
        self._clients[transactional_id] = client_id[: self.MAX_CHARS], host

    def get(self, transactional_id: TransactionalId) -> tuple[str, str] | None:
        return self._clients.get(transactional_id)


class OutstandingMarkers:
    def __init__(self, coordinator_epoch: CoordinatorEpoch) -> None:
        self._coordinator_epoch = coordinator_epoch
        self._awaited: dict[TransactionalId, dict[TopicPartition, None]] = {}
        # Before V2 transactions of an id share their identity; the number tells their markers apart.
        self._numbers: dict[TransactionalId, int] = {}
        self._last_number = 0

    def to_write(self, prepared: Transaction) -> MarkersToWrite:
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
        """Drop the markers of a transaction that is no longer prepared. Returns True if it had any."""
        self._numbers.pop(transactional_id, None)
        return self._awaited.pop(transactional_id, None) is not None

    def are_current(self, markers: MarkersToWrite) -> bool:
        """True if a report about ``markers`` concerns the present transaction and coordinator epoch."""
        return (
            self._numbers.get(markers.transactional_id) == markers.number
            and markers.coordinator_epoch == self._coordinator_epoch
            and markers.transactional_id in self._awaited
        )

    def settle(self, transactional_id: TransactionalId, partitions: Iterable[TopicPartition]) -> bool:
        """Partitions no longer need a marker. Returns True if these were the last."""
        awaited = self._awaited[transactional_id]
        # Without outstanding markers the completion is under way already.
        had_any = bool(awaited)
        for partition in partitions:
            awaited.pop(partition, None)
        return had_any and not awaited

    def awaiting_any(self, partitions: Collection[TopicPartition]) -> list[TransactionalId]:
        return [tid for tid, awaited in self._awaited.items() if not awaited.keys().isdisjoint(partitions)]

    def awaited(self, transactional_id: TransactionalId) -> tuple[TopicPartition, ...] | None:
        """The partitions without a marker; None if the transaction is not prepared."""
        awaited = self._awaited.get(transactional_id)
        return None if awaited is None else tuple(awaited)

    def count(self) -> int:
        return sum(map(len, self._awaited.values()))

    def clear(self) -> None:
        self._awaited.clear()
        self._numbers.clear()
