"""Transitions that are decided and not applied yet: between a decision and its record in the log (invariant X7).

Whoever meets an id that has one waits, because neither the state before nor the state after it is the truth yet. The
transaction a decision makes is kept beside its record, because the record lacks the last epoch.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from oncelog.base.ids import TransactionalId
from oncelog.base.invariant import invariant
from oncelog.core.transactions.transaction import Transaction


class Pending(NamedTuple):
    """A transition: what its record holds (None: a tombstone), and the transaction it makes."""

    value: bytes | None
    transaction: Transaction | None


class PendingTransitions:
    """By transactional id, in the order in which they were decided."""

    def __init__(self) -> None:
        self._pending: dict[TransactionalId, deque[Pending]] = {}

    def __contains__(self, transactional_id: TransactionalId) -> bool:
        return transactional_id in self._pending

    def decided(self, transactional_id: TransactionalId, value: bytes | None, transaction: Transaction | None) -> None:
        """One more."""
        self._pending.setdefault(transactional_id, deque()).append(Pending(value, transaction))

    def confirm(self, transactional_id: TransactionalId, value: bytes | None) -> Pending:
        """The oldest of an id, whose record is in the log now. X7: what is applied is what was decided, in order."""
        pending = self._pending.get(transactional_id, deque())
        invariant(pending, "X7: applied without a decision", transactional_id=transactional_id)
        decided = pending.popleft()
        if not pending:
            del self._pending[transactional_id]
        invariant(decided.value == value, "X7: applied is not what was decided", transactional_id=transactional_id)
        return decided

    def drop(self, transactional_id: TransactionalId) -> None:
        """Its records were refused."""
        self._pending.pop(transactional_id, None)

    def clear(self) -> None:
        """Forget all."""
        self._pending.clear()
