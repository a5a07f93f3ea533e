"""Transitions that are decided and not applied yet: between a decision and its record in the log (invariant X7).

A request for an id that has one waits, because neither the state before nor the state after it is certain yet. The
transaction a decision makes is kept beside its record, because the record lacks the last epoch.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from oncelog.base.ids import TransactionalId
from oncelog.base.invariant import invariant
from oncelog.core.transactions.transaction import Transaction


class Pending(NamedTuple):
    """A transition: the value of its record (None: a tombstone), and the transaction it makes."""

    value: bytes | None
    transaction: Transaction | None


class PendingTransitions:
    """Pending transitions by transactional id, in the order in which they were decided."""

    def __init__(self) -> None:
        self._pending: dict[TransactionalId, deque[Pending]] = {}

    def __contains__(self, transactional_id: TransactionalId) -> bool:
        return transactional_id in self._pending

    def decided(self, transactional_id: TransactionalId, value: bytes | None, transaction: Transaction | None) -> None:
        """Add a transition that was decided."""
        self._pending.setdefault(transactional_id, deque()).append(Pending(value, transaction))

    def confirm(self, transactional_id: TransactionalId, value: bytes | None) -> Pending:
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
        """Drop all transitions."""
        self._pending.clear()
