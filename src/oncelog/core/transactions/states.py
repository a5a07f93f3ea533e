"""The states of a transactional id and the table of transitions (KIP-98, KIP-890; docs/internals/transactions.md).

A transactional id has one transaction at a time. The first added partition *begins* it (Ongoing). A Prepare record
*decides* it: once it is durable the outcome never changes and the client is answered. Then a marker is written to every
partition; when all are there the transaction is *complete*. Each step is one record in ``__transaction_state``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from oncelog.records.internal import transaction_records


class TransactionState(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    # Never stored: the tombstone is in the log and the id is forgotten.
    DEAD = 6
    # Never stored: one decision raises the epoch and prepares the abort.
    PREPARE_EPOCH_FENCE = 7


STATE_NAMES: Final = {state: transaction_records.STATE_NAMES[state] for state in TransactionState}
"""State names in DescribeTransactions, ListTransactions and filters."""

VALID_PREVIOUS_STATES: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    TransactionState.EMPTY: frozenset(
        {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
    ),
    TransactionState.ONGOING: frozenset(
        {
            TransactionState.ONGOING,
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        }
    ),
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: frozenset(
        {
            TransactionState.ONGOING,
            TransactionState.PREPARE_EPOCH_FENCE,
            # Transactions V2: a client that does not know the coordinator's state may abort without a transaction.
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        }
    ),
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: frozenset(
        {TransactionState.EMPTY, TransactionState.COMPLETE_ABORT, TransactionState.COMPLETE_COMMIT}
    ),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.ONGOING}),
}
"""State → the states it may be entered from. Any other transition is our bug, not a peer's."""

PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
"""Decided, markers outstanding."""
COMPLETED: Final = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
AT_REST: Final = COMPLETED | {TransactionState.EMPTY}
"""States with nothing open: a transaction may begin, the producer may be initialised, the id may expire."""
STORED: Final = AT_REST | PREPARED | {TransactionState.ONGOING}
"""The states that records may have."""


def may_follow(previous: TransactionState, state: TransactionState) -> bool:
    return previous in VALID_PREVIOUS_STATES[state]


def state_named(name: str) -> TransactionState | None:
    """The state of a name in a filter, or None."""
    return next((state for state, state_name in STATE_NAMES.items() if state_name == name), None)
