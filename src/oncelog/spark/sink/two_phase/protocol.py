"""The commit protocol of mode ``2pc``: begin, claim, decide, commit, sweep. Pure: programs ``yield`` their I/O.

A program is a generator that yields an operation (``operations``) and receives its answer from a driver:
``cluster_operations``, or a model in the tests. Killing a process means not sending an answer.

Why the protocol is safe; R1–R4 are the rules of ``register``:

P1  ``Fence`` (InitProducerId with the query's own id) and a subsequent ``Read`` make a ``Write`` a compare-and-set: a
    later fence makes it fail. The first decision of an epoch therefore wins (R1).
P2  A task opens a transaction only by ``Claim``, a compare-and-set on its id: it names the identity found *before* the
    register allowed the task to write. A task that slept through a decision, a restart or the next epoch is fenced, and
    never aborts a transaction that another task returned.
P3  A listed transaction was seen open in its own identity after the fence; then the decision is written (R2).
P4  After the decision, EndTxn(commit) names exactly the listed identities. Any other identity, or aborted rows, are an
    error with the rows concerned.
P5  The sweep lists first, then proves that the fence still holds, then aborts by exact identity, so a slow sweep cannot
    hit the next run or epoch. It runs after the register forbids the run to claim.
P6  A transaction left open by an undecided run is aborted, never committed: by the same rule as P5 when the epoch
    begins again, or by the next sweep.
P7  A register that is ahead of the attempt, or whose epoch had other rows, stops the query instead of draining it,
    because checkpoints are restored and copied.

A program must not abort or claim by name alone, nor decide a transaction that no message names.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from enum import Enum
from typing import Any, Final

from oncelog.client.machine.transaction_values import StoredTransaction
from oncelog.spark.session.errors import SinkError
from oncelog.spark.sink.two_phase.errors import Behind, FencedDriver, LostRows, NotOpen, OtherRows, Superseded
from oncelog.spark.sink.two_phase.operations import (
    CheckAborted,
    Claim,
    Describe,
    End,
    Ended,
    Fence,
    FindLedger,
    FindRemoved,
    Identity,
    ListOpen,
    Operation,
    Publish,
    Read,
    ReadLedger,
    Stage,
    Ticket,
    Write,
)
from oncelog.spark.sink.two_phase.register import (
    UNKNOWN,
    Attempt,
    Listed,
    Register,
    Standing,
    abandoned,
    begun,
    decided,
    done,
    standing,
)

PREFIX: Final = "oncelog-sink"
CLAIM_ATTEMPTS: Final = 20
# Number of transactional ids of one task's attempts. Spark starts far fewer while the first still works.
TASK_ID_COUNT: Final = 32


def driver_id(query: str) -> str:
    return f"{PREFIX}/{query}"


def task_id(query: str, partition: int | str, ticket: int) -> str:
    """The transactional id of one attempt of a task; live attempts never share it, later epochs reuse it."""
    return f"{PREFIX}/{query}/{partition}/{ticket % TASK_ID_COUNT}"


def ticket_id(query: str, partition: int | str) -> str:
    """The id whose epochs are the tickets of a task's attempts. In mode ``ledger`` the task writes with it."""
    return f"{PREFIX}/{query}/{partition}"


def is_task_id(transactional_id: str) -> bool:
    """True for an id with which a task writes rows in two phases; query ids have no slash."""
    return transactional_id.startswith(f"{PREFIX}/") and transactional_id.count("/") == 3


def task_prefix(query: str) -> str:
    return f"{PREFIX}/{query}/"


class TaskAction(Enum):
    WRITE = "claim an id and write"
    DRAIN = "the epoch is decided: read the input to its end, write nothing"
    COMPARE = "mode ledger has written these rows: compare them, write nothing"


def begin(
    attempt: Attempt, accepted: int | None = None, accepted_twice: int | None = None
) -> Generator[Operation, Any, TaskAction]:
    """Record in the register that this run has begun. Raises Superseded; the caller retries FencedDriver.

    ``accepted``, here and below, is the epoch of option ``acceptLoss``; ``accepted_twice`` that of
    ``acceptDuplicates``.
    """
    register: Register | None = yield Read()
    if (action := _task_action(register, attempt, accepted)) is not None:
        return action
    yield Fence()
    register = yield Read()
    if (action := _task_action(register, attempt, accepted)) is not None:
        return action
    if standing(register, attempt) is Standing.FINISH_FIRST:
        assert register is not None
        yield from _finish(register, attempt.query, accepted)
        register = yield Read()
        yield Fence()
        register = yield Read()
        if (action := _task_action(register, attempt, accepted)) is not None:
            return action
    if register is None:
        yield from _stop_if_forgotten(attempt, accepted_twice)
    open_transactions: list[StoredTransaction] = []
    if register is not None and register.epoch == attempt.epoch:
        open_transactions = yield ListOpen(task_prefix(attempt.query))
    yield from _write(begun(register, attempt))
    for stored in open_transactions:
        yield End(stored, commit=False)
    return TaskAction.WRITE


def _stop_if_forgotten(attempt: Attempt, accepted: int | None) -> Generator[Operation, Any, None]:
    """Raise SinkError for a later epoch without a register: it was deleted, or another sink wrote the query."""
    if attempt.epoch in (0, accepted):
        return
    if not (yield FindLedger(task_prefix(attempt.query))):
        raise SinkError(
            f"query {attempt.query} has no entry in __oncelog_sink, but this is its epoch {attempt.epoch}. If the "
            "topic was deleted, that epoch may already be written. If the checkpoint comes from another sink, or from "
            f"exactlyOnce=off, continue with acceptDuplicates={attempt.epoch}"
        )


def claim(
    attempt: Attempt, partition: int | str, accepted: int | None = None
) -> Generator[Operation, Any, StoredTransaction | TaskAction]:
    """Claim an identity for one attempt of a task, or return the action that it takes instead. Raises Superseded,
    SinkError."""
    for _ in range(CLAIM_ATTEMPTS):
        # P2: attempts of one task must not share an id: equal claims of two tasks get the same answer, the later as a
        # retry of the earlier. A ticket differs in TASK_ID_COUNT consecutive attempts of a task (ADR 0006).
        ticket: int = yield Ticket(ticket_id(attempt.query, partition))
        in_ledger: int | None = yield ReadLedger(ticket_id(attempt.query, partition))
        transactional_id = task_id(attempt.query, partition, ticket)
        identities: dict[str, Identity] = yield Describe((transactional_id,))
        register: Register | None = yield Read()
        if _task_action(register, attempt, accepted) is not TaskAction.WRITE:
            return TaskAction.DRAIN
        # P7: rows that mode ledger has written are not written again.
        if in_ledger is not None and in_ledger >= attempt.epoch:
            return TaskAction.COMPARE
        # P2: a compare-and-set on the identity found before the register was read.
        claimed: StoredTransaction | None = yield Claim(transactional_id, identities.get(transactional_id))
        if claimed is None:
            continue
        # P2: attempts of other runs may share the id; this second reading of the register stops them.
        register = yield Read()
        return claimed if _task_action(register, attempt, accepted) is TaskAction.WRITE else TaskAction.DRAIN
    raise SinkError(
        f"other tasks claimed the ids of task {partition} of {attempt.query} {CLAIM_ATTEMPTS} times: do two queries "
        "use the same checkpoint?"
    )


def confirm(attempt: Attempt, stored: StoredTransaction) -> Generator[Operation, Any, bool]:
    """After a flush: True if the transaction may still count. Otherwise another attempt has won, and it is aborted."""
    register: Register | None = yield Read()
    state = standing(register, attempt)
    if state is Standing.WRITE:
        return True
    if (
        register is not None
        and state is Standing.DECIDED
        and any(transaction.stored == stored for transaction in register.listed)
    ):
        return True
    yield End(stored, commit=False)
    if state in (Standing.STALE, Standing.BEHIND):
        raise Superseded(_superseded(attempt))
    return False


def commit(
    attempt: Attempt, listed: Iterable[Listed], *, rows: int = UNKNOWN, accepted: int | None = None
) -> Generator[Operation, Any, tuple[Listed, ...]]:
    """Decide the epoch, commit exactly ``listed``, sweep. Returns the transactions committed. Idempotent.

    ``rows``: the number that the tasks received, written or not. Raises Superseded, FencedDriver, NotOpen (nothing was
    decided: run again), LostRows, OtherRows.
    """
    ours = tuple(listed)
    register: Register | None = yield Read()
    if _checked_standing(register, attempt, accepted) is Standing.DONE:
        return _check_rows(register, attempt, rows, accepted)
    yield Fence()
    register = yield Read()
    if _checked_standing(register, attempt, accepted) is Standing.FINISH_FIRST:
        assert register is not None
        yield from _finish(register, attempt.query, accepted)
        register = yield Read()
        yield Fence()
        register = yield Read()
    state = _checked_standing(register, attempt, accepted)
    if state is Standing.DONE:
        return _check_rows(register, attempt, rows, accepted)
    ours_now = state is not Standing.DECIDED
    if ours_now:
        if state is Standing.BEGIN and ours:
            raise Superseded(
                f"epoch {attempt.epoch}: the register does not know this run; was the topic __oncelog_sink deleted?"
            )
        # P3: every listed transaction must be open in its own identity after the fence.
        yield from _check_open(ours)
        register = decided(register, attempt, ours, rows)
        yield from _write(register)
    assert register is not None
    committed = yield from _finish(register, attempt.query, accepted, ours=ours_now)
    _check_rows(register, attempt, rows, accepted)
    return committed


def abort(attempt: Attempt) -> Generator[Operation, Any, None]:
    """Abort the transactions of a run that Spark abandoned, unless it is decided or not the latest."""
    register: Register | None = yield Read()
    if standing(register, attempt) is not Standing.WRITE:
        return
    yield Fence()
    register = yield Read()
    if register is None or standing(register, attempt) is not Standing.WRITE:
        return
    # P5: forbid the run to claim before the sweep lists its transactions.
    register = abandoned(register)
    yield from _write(register)
    yield from _sweep(attempt.query, register, keep=())


def _check_rows(register: Register | None, attempt: Attempt, rows: int, accepted: int | None) -> tuple[Listed, ...]:
    if register is None or register.epoch != attempt.epoch or UNKNOWN in (rows, register.rows):
        return ()
    if rows != register.rows and accepted != attempt.epoch:
        raise OtherRows(
            f"epoch {attempt.epoch} of query {attempt.query} has {rows} rows, but {register.rows} were written as that "
            "epoch before: the plan produces other rows when it runs again, or the checkpoint was restored, rewound or "
            f"copied. acceptLoss={attempt.epoch} continues with the rows that were written"
        )
    return ()


def _finish(
    register: Register, query: str, accepted: int | None, *, ours: bool = False
) -> Generator[Operation, Any, tuple[Listed, ...]]:
    """Commit the decided transactions, abort the others, write DONE. ``ours``: this driver has just decided; retention
    may have reached an older decision."""
    lost = []
    if not ours:
        lost += yield FindRemoved(register.listed)
    for transaction in register.listed:
        # P4: exactly the listed identities. A repetition is recognised. An id that is no longer known was ended and
        # forgotten long ago, which the log confirms if it still has the rows.
        ended: Ended = yield End(transaction.stored, commit=True)
        if ended is Ended.OTHER or (ended is Ended.UNKNOWN and (yield CheckAborted(transaction))):
            lost.append(transaction)
    if lost and (yield Read()) != register:
        raise Superseded(f"another driver of query {query} finished epoch {register.epoch} and has continued")
    if lost and accepted != register.epoch:
        raise LostRows(register.epoch, tuple(dict.fromkeys(lost)))
    yield from _sweep(query, done(register), keep=tuple(transaction.stored for transaction in register.listed))
    return register.listed


def _sweep(query: str, following: Register, keep: tuple[StoredTransaction, ...]) -> Generator[Operation, Any, None]:
    """Abort the query's open transactions, by exact identity, and write ``following`` (P5)."""
    # P5: list before the proof, so that nothing of the next run can be in the list.
    open_transactions: list[StoredTransaction] = yield ListOpen(task_prefix(query))
    # P5: a staged write proves that the fence still holds; otherwise it is rejected.
    if not (yield Stage(following)):
        raise FencedDriver(_fenced(query))
    # P5: identities that are claimed and not yet open are aborted as well, so that the run opens nothing behind the
    # sweep.
    for stored in open_transactions:
        if stored not in keep:
            yield End(stored, commit=False)
    if not (yield Publish()):
        raise FencedDriver(_fenced(query))


def _write(register: Register) -> Generator[Operation, Any, None]:
    if not (yield Write(register)):
        raise FencedDriver(_fenced(f"epoch {register.epoch}"))


def _check_open(listed: tuple[Listed, ...]) -> Generator[Operation, Any, None]:
    if not listed:
        return
    identities: dict[str, Identity] = yield Describe(
        tuple(transaction.stored.transactional_id for transaction in listed)
    )
    for transaction in listed:
        name, producer_id, producer_epoch = transaction.stored
        if identities.get(name) != Identity(producer_id, producer_epoch, True):
            raise NotOpen(f"{transaction} is no longer open, so nothing was decided: start the query again")


def _task_action(register: Register | None, attempt: Attempt, accepted: int | None) -> TaskAction | None:
    """The task's action according to the register; None if the run must begin first. Raises Superseded."""
    match _checked_standing(register, attempt, accepted):
        case Standing.WRITE:
            return TaskAction.WRITE
        case Standing.DECIDED | Standing.DONE:
            return TaskAction.DRAIN
    return None


def _checked_standing(register: Register | None, attempt: Attempt, accepted: int | None) -> Standing:
    """The attempt's standing, if it may continue. Raises Superseded."""
    state = standing(register, attempt)
    if state is Standing.STALE:
        raise Superseded(_superseded(attempt))
    if state is Standing.BEHIND:
        assert register is not None
        if accepted is None or accepted < register.epoch:
            raise Behind(attempt.query, attempt.epoch, register.epoch)
        return Standing.DONE
    return state


def _superseded(attempt: Attempt) -> str:
    return f"another run of epoch {attempt.epoch} of query {attempt.query} has begun since this one"


def _fenced(subject: str) -> str:
    return f"another driver of the query has taken over ({subject}): is it running twice on one checkpoint?"
