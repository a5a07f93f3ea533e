"""Parking of requests that wait for a transaction to complete ("wait, don't refuse"), each until its deadline.

A client that gets CONCURRENT_TRANSACTIONS sleeps, usually 20 ms or more, while markers take a fraction of that. So a
request that meets a transaction between Prepare and Complete is *parked* under its token, becomes *ready* when the
transaction has completed, is decided again, and is refused only when its deadline passes. A request keeps its deadline
when it is parked again. Invariant X8: a token is in one place at most.

One AddPartitionsToTxn may bring tens of thousands of entries, which all wait for the same transaction and time out at
once: no method here searches through the parked requests.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TransactionalId
from oncelog.core.transactions.model import Reply, TransactionRequest, refusal_of
from oncelog.core.transactions.timers import TimerKey, TimerKind, Timers


class Waiting(NamedTuple):
    """A request, decided anew each time its transaction completes, and the token that its reply goes to."""

    token: int
    request: TransactionRequest

    @property
    def transactional_id(self) -> TransactionalId:
        """The transaction that it waits for."""
        return self.request.transactional_id

    def refused(self, error_code: ErrorCode) -> tuple[int, Reply]:
        """The token and the reply that refuses the request."""
        return self.token, refusal_of(self.request, error_code)


class Parking:
    """The requests that wait, by transactional id, in order of arrival."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._parked: dict[TransactionalId, dict[int, Waiting]] = {}
        """Waiting requests by token, in order of arrival."""
        self._ready: OrderedDict[int, Waiting] = OrderedDict()
        self._waits_for: dict[int, TransactionalId] = {}
        """The transaction that each parked token waits for."""

    def __iter__(self) -> Iterator[Waiting]:
        yield from self._ready.values()
        for parked in self._parked.values():
            yield from parked.values()

    def park(self, waiting: Waiting, deadline_ms: int) -> None:
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
        """True if a request is ready to be decided."""
        return bool(self._ready)

    def next_ready(self) -> Waiting:
        """Take out the request that has been ready longest; its deadline still runs."""
        _, waiting = self._ready.popitem(last=False)
        return waiting

    def answered(self, token: int) -> None:
        """Cancel the deadline of a request that was answered."""
        self._timers.cancel(TimerKey(TimerKind.PARKED, token=token))

    def remove(self, token: int) -> Waiting | None:
        """Take out a request, parked or ready, and cancel its deadline; None if it is neither."""
        self.answered(token)
        transactional_id = self._waits_for.pop(token, None)
        if transactional_id is None:
            return self._ready.pop(token, None)
        parked = self._parked[transactional_id]
        found = parked.pop(token)
        if not parked:
            del self._parked[transactional_id]
        return found

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
