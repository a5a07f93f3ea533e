"""Decides what became of the transaction that a stored identity names, and whether a tool may end it. Pure."""

# A job stores the identity of a transaction (transactional id, producer id, epoch) before it commits it. If the job
# dies in between, an administrator ends the transaction by that identity (EndTxn). A coordinator accepts any EndTxn
# with the present identity, so the tool has to know which transaction it would end.
#
# Rules:
#
# 1. Under Transactions V2 (KIP-890) each end raises the epoch, so an identity names at most one transaction. Under V1
#    the epoch stays: the same identity names one transaction after another.
# 2. A transaction that began after the job stored the identity is a later one. Without that time, an identity that
#    has named several transactions is ambiguous: if one is open, or if they ended differently. Neither is ended.
# 3. The epoch in a completed state is that of the next transaction under V2, and that of the last one under V1. The
#    log of the coordinator (``coordinator_log``) tells which; without it nothing is called committed on that ground.
# 4. Start times order the transactions of an id. They are the coordinator's, and survive the end.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from oncelog.admin.transactions.durations import duration_text, moment_text
from oncelog.admin.transactions.transactional_ids import TransactionRow
from oncelog.base.ids import TopicPartition
from oncelog.base.transaction_verdicts import ONGOING_STATE
from oncelog.client.machine.transaction_values import StoredTransaction

TRANSACTIONS_V2: Final = 2
_EMPTY_STATE: Final = "Empty"
_COMMITTED_STATES: Final = frozenset({"PrepareCommit", "CompleteCommit"})
_COMPLETE_STATES: Final = frozenset({"CompleteCommit", "CompleteAbort"})
_ENDED_STATES: Final = frozenset({*_COMMITTED_STATES, *_COMPLETE_STATES, "PrepareAbort", "PrepareEpochFence"})


class IdentityState(Enum):
    """The state of a stored transaction; values appear in ``--json`` output."""

    OPEN = "open"
    EMPTY = "empty"
    """Nothing was written under the identity."""
    COMMITTING = "committing"
    ABORTING = "aborting"
    COMMITTED = "committed"
    ABORTED = "aborted"
    AMBIGUOUS = "ambiguous"
    """The identity has named several transactions, and nothing tells which one is meant."""
    LATER = "later"
    """The identity names a later transaction now; how the stored one ended is unknown."""
    MOVED_ON = "moved_on"
    """The transactional id has another identity now; how the stored one ended is unknown."""
    BEHIND = "behind"
    """The coordinator has an older epoch than the stored one."""
    EXPIRED = "expired"
    """The coordinator does not know the transactional id; how the transaction ended is unknown."""


class EndAction(Enum):
    """The way to deal with a stored transaction."""

    END = "end"
    NOTHING = "nothing"
    """The transaction has ended as requested already."""
    REFUSE = "refuse"


_DONE: Final = {
    True: frozenset({IdentityState.COMMITTED, IdentityState.COMMITTING, IdentityState.EMPTY}),
    False: frozenset({IdentityState.ABORTED, IdentityState.ABORTING, IdentityState.EMPTY}),
}


class PastTransaction(NamedTuple):
    """A transaction of an id, as the coordinator's log has it.

    ``producer_epoch`` is the epoch that its records have, None if the log does not tell. ``committed`` is None while it
    is open. ``after_timeout`` is True if it was aborted under a new epoch after its time-out, as the coordinator does.
    ``client_version`` is the transaction version of the client that began it, 0 also if unknown.
    """

    producer_id: int
    producer_epoch: int | None
    start_ms: int
    ended_ms: int | None
    committed: bool | None
    after_timeout: bool = False
    client_version: int = 0
    partitions: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class SavedTransaction:
    """A transaction by its stored identity, with the decision that the saved state of its job implies.

    ``why`` is a clause about the job, None if a person decides. ``stored_at_ms`` is when the job stored the identity.
    ``keeps_epoch``: see ``ending.plan_end``.
    """

    stored: StoredTransaction
    commit: bool
    why: str | None = None
    stored_at_ms: int | None = None
    keeps_epoch: bool | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """The facts about a stored transaction.

    ``row`` is None if the coordinator does not know the id. ``past`` are the id's transactions in the coordinator's
    log, oldest first. ``has_earlier_records`` is True if the records of the open transaction continue the sequence
    numbers of an earlier one under the same identity.
    """

    stored: StoredTransaction
    row: TransactionRow | None
    past: Sequence[PastTransaction] = ()
    stored_at_ms: int | None = None
    has_earlier_records: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """The state of a stored transaction, and the reason as a sentence without its full stop.

    ``may_name_another`` is True if the identity could name a later transaction a moment from now (Transactions V1).
    """

    state: IdentityState
    reason: str
    may_name_another: bool = False

    def action(self, *, commit: bool) -> EndAction:
        if self.state is IdentityState.OPEN:
            return EndAction.END
        return EndAction.NOTHING if self.state in _DONE[commit] else EndAction.REFUSE


def judge(evidence: Evidence) -> Judgement:
    """Decide what became of the stored transaction."""
    row, stored = evidence.row, evidence.stored
    if row is None:
        return _from_log(evidence) or Judgement(
            IdentityState.EXPIRED,
            f"The coordinator does not know {stored.transactional_id!r} any more: the transaction has ended, and the "
            f"id has expired since (transactional.id.expiration.ms). {_unknown_end(evidence)}. `oncelog txn "
            "find-hanging` shows whether its records still hold a partition",
        )
    if row.producer_id == stored.producer_id:
        if row.producer_epoch < stored.producer_epoch:
            return Judgement(
                IdentityState.BEHIND,
                f"The coordinator has {stored.transactional_id!r} at epoch {row.producer_epoch}, older than the stored "
                f"epoch {stored.producer_epoch}: it has lost some of its state, or the identity is not of this cluster",
            )
        if row.state in _ENDED_STATES:
            return _ended(evidence, row)
        if row.producer_epoch == stored.producer_epoch:
            return _open(evidence, row) if row.state == ONGOING_STATE else _empty(stored, row)
    return _moved_on(evidence, row)


def _open(evidence: Evidence, row: TransactionRow) -> Judgement:
    stored_at_ms = evidence.stored_at_ms
    began = "" if row.start_ms is None else f", begun {moment_text(row.start_ms)}"
    earlier = [past for past in _same_identity(evidence) if past.committed is not None]
    # Rule 1: whatever the clocks say.
    if _is_unique(evidence) and not earlier:
        return Judgement(IdentityState.OPEN, f"The coordinator has it open{began}")
    if stored_at_ms is not None and row.start_ms is not None:
        if row.start_ms > stored_at_ms:
            return _later(evidence, f"a later transaction is open under the same identity{began}")
        reason = f"The coordinator has it open{began}, no later than the identity was stored"
        return Judgement(IdentityState.OPEN, reason, may_name_another=True)
    if earlier or evidence.has_earlier_records:
        count = f"{len(earlier)} earlier transaction{'s' * (len(earlier) > 1)}" if earlier else "an earlier transaction"
        return Judgement(
            IdentityState.AMBIGUOUS,
            f"The coordinator has a transaction open{began}, but the same identity has named {count} before (a client "
            "of Transactions V1 keeps its epoch). The stored one may have ended long ago. Say when the job stored the "
            "identity (--stored-at)",
            may_name_another=True,
        )
    return Judgement(IdentityState.OPEN, f"The coordinator has it open{began}", may_name_another=True)


def _empty(stored: StoredTransaction, row: TransactionRow) -> Judgement:
    return Judgement(
        IdentityState.EMPTY,
        f"The coordinator has no transaction of {stored.transactional_id!r} at epoch {stored.producer_epoch} "
        f"({row.state}): nothing was written under this identity",
    )


def _ended(evidence: Evidence, row: TransactionRow) -> Judgement:
    """The last transaction of the id is decided or complete; which epoch it had is rule 3."""
    stored = evidence.stored
    last = next((past for past in reversed(evidence.past) if past.start_ms == row.start_ms), None)
    epoch = None if last is None else last.producer_epoch
    if epoch is None and row.producer_epoch == stored.producer_epoch:
        # V1, or a V2 transaction before the stored one. Taken for V1: the other case has nothing to lose.
        epoch = stored.producer_epoch
    if epoch is None or epoch > stored.producer_epoch:
        return _moved_on(evidence, row)
    if epoch < stored.producer_epoch:
        return _empty(stored, row)
    is_commit = row.state in _COMMITTED_STATES
    stored_at_ms = evidence.stored_at_ms
    is_later = stored_at_ms is not None and row.start_ms is not None and row.start_ms > stored_at_ms
    if is_later and not _is_unique(evidence):
        end = "committed" if is_commit else "aborted"
        return _later(evidence, f"a later transaction under the same identity was {end}")
    ends = {past.committed for past in _same_identity(evidence) if past.committed is not None}
    if stored_at_ms is None and (len(ends) > 1 or (last is None and is_commit)):
        end = "committed" if is_commit else "aborted"
        return Judgement(
            IdentityState.AMBIGUOUS,
            f"The last transaction under this identity was {end}, and the stored one may be an earlier one. "
            f"{_unknown_end(evidence)}",
        )
    if row.state in _COMPLETE_STATES:
        return _complete(last or PastTransaction(row.producer_id, epoch, -1, None, is_commit), is_commit)
    state = IdentityState.COMMITTING if is_commit else IdentityState.ABORTING
    end = "commit" if is_commit else "abort"
    return Judgement(state, f"The coordinator has decided to {end} it and is writing the markers ({row.state})")


def _complete(past: PastTransaction, is_commit: bool) -> Judgement:
    when = "" if past.ended_ms is None else f" {moment_text(past.ended_ms)}"
    if is_commit:
        return Judgement(IdentityState.COMMITTED, f"It was committed{when}: its records can be read")
    if past.after_timeout and past.ended_ms is not None:
        open_for = duration_text(past.ended_ms - past.start_ms)
        why = f"It was aborted{when}, {open_for} after its begin: its time-out had passed"
    else:
        why = f"It was aborted{when}"
    return Judgement(
        IdentityState.ABORTED,
        f"{why}: its records are lost for readers of committed records, and no tool restores them",
    )


def _later(evidence: Evidence, text: str) -> Judgement:
    told = _from_log(evidence)
    if told is not None:
        return Judgement(told.state, f"{told.reason}. By now {text}; it is not touched")
    return Judgement(
        IdentityState.LATER,
        f"{text[0].upper()}{text[1:]}: it began after the job stored the identity, by the coordinator's clock, so it "
        f"is another one. The stored transaction has ended. {_unknown_end(evidence)}",
        may_name_another=True,
    )


def _moved_on(evidence: Evidence, row: TransactionRow) -> Judgement:
    stored = evidence.stored
    if row.producer_id != stored.producer_id:
        now = f"producer id {row.producer_id}"
    else:
        now = f"epoch {row.producer_epoch}, {row.state}"
    told = _from_log(evidence)
    if told is not None:
        return Judgement(told.state, f"{told.reason}. By now {stored.transactional_id!r} has {now}")
    if row.state == ONGOING_STATE and row.is_two_phase:
        return Judgement(
            IdentityState.MOVED_ON,
            f"{stored.transactional_id!r} has {now} by now, with a transaction in two-phase commit: a new instance may "
            "have taken over the stored one, and ends it",
        )
    return Judgement(
        IdentityState.MOVED_ON,
        f"{stored.transactional_id!r} has gone on: it has {now} by now. The stored transaction ended before, by its "
        f"producer, by its time-out or by a new instance. {_unknown_end(evidence)}",
    )


def _from_log(evidence: Evidence) -> Judgement | None:
    """The judgement by the coordinator's log; None if it does not tell."""
    same = _same_identity(evidence)
    if evidence.stored_at_ms is not None and not _is_unique(evidence):
        same = [past for past in same if past.start_ms <= evidence.stored_at_ms][-1:]
    if len(same) != 1 or same[0].committed is None:
        return None
    return _complete(same[0], same[0].committed)


def _unknown_end(evidence: Evidence) -> str:
    ended = [past for past in _same_identity(evidence) if past.committed is not None]
    if not ended:
        return "Whether it was committed is not known; the time when the job stored it (--stored-at) may tell"
    ends = ", ".join(
        f"{'committed' if past.committed else 'aborted'} {moment_text(past.ended_ms or 0)}" for past in ended[-5:]
    )
    return (
        f"The coordinator's log has {len(ended)} transactions of this identity ({ends}); say when the job stored it "
        "(--stored-at) to tell which one is meant"
    )


def _is_unique(evidence: Evidence) -> bool:
    """True if the coordinator's log shows that the identity names one transaction only (rule 1)."""
    same = _same_identity(evidence)
    return len(same) == 1 and same[0].client_version >= TRANSACTIONS_V2


def _same_identity(evidence: Evidence) -> list[PastTransaction]:
    identity = evidence.stored[1:]
    return [past for past in evidence.past if (past.producer_id, past.producer_epoch) == identity]
