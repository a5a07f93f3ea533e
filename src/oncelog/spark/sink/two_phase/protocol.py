"""The commit protocol of mode ``2pc``: begin, claim, decide, commit, sweep. Pure: I/O is asked for with
``yield``.

A program is a generator that yields an operation (``operations``) and is sent its answer; its driver does the I/O:
``cluster_operations`` over the blocking client, a model in the tests. Killing a process is not sending an answer.

Why it is safe, one line a rule; the names R1–R4 are ``register``'s:

P1  ``Fence`` (InitProducerId on the query's own id) and a ``Read`` after it make a ``Write`` a compare-and-set: who
    fences later makes it fail. So the first decision of an epoch wins (R1).
P2  A task opens a transaction only by ``Claim``, itself a compare-and-set on its id: it names the identity that was
    found *before* the register allowed the task to write. Between the two nobody can have claimed the id: a task that
    slept through a decision, a restart or the next epoch is fenced, and never aborts what another returned.
    Equal claims of two tasks are answered alike, the later as a retry of the earlier, so no two attempts that may write
    have one id: its last part is a ``Ticket``, which differs in the ``NAMES`` attempts of a task that follow each other
    (ADR 0006). Attempts of other runs may have it: the register is read once more after the claim, and stops them.
P3  What is listed was seen open in its own identity after the fence; then the decision is written (R2).
P4  After the decision EndTxn(commit) names exactly the listed identities. Repeating it is recognised; an id that is not
    known any more was ended and forgotten long since, as the log tells if it still has the rows. Any other identity, or
    rows that were aborted, are an error with the rows concerned.
P5  The sweep lists first, then proves that the fence is still held (``Stage`` is refused otherwise), then aborts by
    exact identity. Whatever the next run or epoch opens has another identity, so a slow sweep cannot hit it. It comes
    after the register forbids the run to claim, and aborts claimed identities as well as open ones, so that nothing of
    the run is opened behind it.
P6  A transaction that an undecided run left open is aborted, never committed: when the epoch begins again, by the same
    rule as P5, or with the next sweep.
P7  A register that is ahead of the attempt, or whose epoch had other rows, stops the query instead of draining it:
    checkpoints are restored and copied. A task that mode ``ledger`` has written is not written again.

A program must not abort or claim by name alone, or decide a transaction that no message names.
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
    Found,
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
    begun,
    decided,
    done,
    given_up,
    standing,
)

PREFIX: Final = "oncelog-sink"
CLAIM_ATTEMPTS: Final = 20
NAMES: Final = 32
"""Transactional ids of one task's attempts. Spark begins far fewer of them while the first is still at work."""


def driver_id(query: str) -> str:
    """The transactional id that only one driver of the query holds."""
    return f"{PREFIX}/{query}"


def task_id(query: str, partition: int | str, ticket: int) -> str:
    """The transactional id of one attempt of one task; no two live attempts share it, later epochs do."""
    return f"{PREFIX}/{query}/{partition}/{ticket % NAMES}"


def ticket_id(query: str, partition: int | str) -> str:
    """The id whose epochs are the tickets of a task's attempts. In mode ``ledger`` it is what the task writes with."""
    return f"{PREFIX}/{query}/{partition}"


def is_task_id(transactional_id: str) -> bool:
    """True for an id with which a task writes rows in two phases; no query id has a slash."""
    return transactional_id.startswith(f"{PREFIX}/") and transactional_id.count("/") == 3


def task_prefix(query: str) -> str:
    """The prefix of the ids of all tasks of a query."""
    return f"{PREFIX}/{query}/"


class TaskAction(Enum):
    """The way in which a task treats its rows."""

    WRITE = "claim an id and write"
    DRAIN = "the epoch is decided: read the input to its end, write nothing"
    COMPARE = "mode ledger has written these rows: compare them, write nothing"


# Tasks.


def begin(
    attempt: Attempt, accepted: int | None = None, accepted_twice: int | None = None
) -> Generator[Operation, Any, TaskAction]:
    """Make the register say that this run has begun. Raises Superseded; FencedDriver is tried again by the caller.

    ``accepted``, here and below: the epoch whose loss the user takes (option ``acceptLoss``); ``accepted_twice``: one
    that may be written a second time (``acceptDuplicates``)."""
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
    left: list[StoredTransaction] = []
    if register is not None and register.epoch == attempt.epoch:
        left = yield ListOpen(task_prefix(attempt.query))
    yield from _write(begun(register, attempt))
    for stored in left:
        yield End(stored, commit=False)
    return TaskAction.WRITE


def _stop_if_forgotten(attempt: Attempt, accepted: int | None) -> Generator[Operation, Any, None]:
    """Raise SinkError for a later epoch without a register: it was deleted, or the query was written some other way."""
    if attempt.epoch in (0, accepted):
        return
    if not (yield FindLedger(task_prefix(attempt.query))):
        raise SinkError(
            f"query {attempt.query} has no entry in __oncelog_sink, but this is its epoch {attempt.epoch}. If the "
            "topic was deleted, that epoch may be written already. If the checkpoint comes from another sink, or from "
            f"exactlyOnce=off, go on with acceptDuplicates={attempt.epoch}"
        )


def claim(
    attempt: Attempt, partition: int | str, accepted: int | None = None
) -> Generator[Operation, Any, StoredTransaction | TaskAction]:
    """An identity for one attempt of a task, or the action that it takes instead of writing. Raises Superseded,
    SinkError."""
    for _ in range(CLAIM_ATTEMPTS):
        ticket: int = yield Ticket(ticket_id(attempt.query, partition))
        in_ledger: int | None = yield ReadLedger(ticket_id(attempt.query, partition))
        transactional_id = task_id(attempt.query, partition, ticket)
        found: dict[str, Found] = yield Describe((transactional_id,))
        register: Register | None = yield Read()
        if _task_action(register, attempt, accepted) is not TaskAction.WRITE:
            return TaskAction.DRAIN
        if in_ledger is not None and in_ledger >= attempt.epoch:
            return TaskAction.COMPARE
        claimed: StoredTransaction | None = yield Claim(transactional_id, found.get(transactional_id))
        if claimed is None:
            continue
        register = yield Read()
        return claimed if _task_action(register, attempt, accepted) is TaskAction.WRITE else TaskAction.DRAIN
    raise SinkError(
        f"other tasks have claimed the ids of task {partition} of {attempt.query} {CLAIM_ATTEMPTS} times: are two "
        "queries "
        "using one checkpoint?"
    )


def confirm(attempt: Attempt, stored: StoredTransaction) -> Generator[Operation, Any, bool]:
    """After everything is flushed: True if the transaction may still count. Otherwise a twin has won, and it is
    aborted."""
    register: Register | None = yield Read()
    where = standing(register, attempt)
    if where is Standing.WRITE:
        return True
    if register is not None and where is Standing.DECIDED and any(one.stored == stored for one in register.listed):
        return True
    yield End(stored, commit=False)
    if where in (Standing.STALE, Standing.BEHIND):
        raise Superseded(_superseded(attempt))
    return False


# The driver.


def commit(
    attempt: Attempt, listed: Iterable[Listed], *, rows: int = UNKNOWN, accepted: int | None = None
) -> Generator[Operation, Any, tuple[Listed, ...]]:
    """Decide the epoch, commit exactly ``listed``, sweep. The transactions committed; a repetition changes nothing.

    ``rows``: the number that the tasks were given, written or not. Raises Superseded, FencedDriver, NotOpen (nothing
    was decided: run again), LostRows, OtherRows.
    """
    ours = tuple(listed)
    register: Register | None = yield Read()
    if _where(register, attempt, accepted) is Standing.DONE:
        return _done_before(register, attempt, rows, accepted)
    yield Fence()
    register = yield Read()
    if _where(register, attempt, accepted) is Standing.FINISH_FIRST:
        assert register is not None
        yield from _finish(register, attempt.query, accepted)
        register = yield Read()
        yield Fence()
        register = yield Read()
    where = _where(register, attempt, accepted)
    if where is Standing.DONE:
        return _done_before(register, attempt, rows, accepted)
    ours_now = where is not Standing.DECIDED
    if ours_now:
        if where is Standing.BEGIN and ours:
            raise Superseded(
                f"epoch {attempt.epoch}: the register does not know this run; was the topic __oncelog_sink deleted?"
            )
        yield from _check_open(ours)
        register = decided(register, attempt, ours, rows)
        yield from _write(register)
    assert register is not None
    committed = yield from _finish(register, attempt.query, accepted, ours=ours_now)
    _done_before(register, attempt, rows, accepted)
    return committed


def abort(attempt: Attempt) -> Generator[Operation, Any, None]:
    """Abort the transactions of a run that Spark gave up, unless it is decided or not the latest."""
    register: Register | None = yield Read()
    if standing(register, attempt) is not Standing.WRITE:
        return
    yield Fence()
    register = yield Read()
    if register is None or standing(register, attempt) is not Standing.WRITE:
        return
    register = given_up(register)
    yield from _write(register)
    yield from _sweep(attempt.query, register, keep=())


def _done_before(register: Register | None, attempt: Attempt, rows: int, accepted: int | None) -> tuple[Listed, ...]:
    """Raise OtherRows where the epoch that was decided had other rows than it has now."""
    if register is None or register.epoch != attempt.epoch or UNKNOWN in (rows, register.rows):
        return ()
    if rows != register.rows and accepted != attempt.epoch:
        raise OtherRows(
            f"epoch {attempt.epoch} of query {attempt.query} has {rows} rows, but {register.rows} were written as that "
            "epoch before: the plan gives other rows when it runs again, or the checkpoint was restored, rewound or "
            f"copied. acceptLoss={attempt.epoch} goes on with what was written"
        )
    return ()


def _finish(
    register: Register, query: str, accepted: int | None, *, ours: bool = False
) -> Generator[Operation, Any, tuple[Listed, ...]]:
    """Commit the decided transactions, abort the others, write DONE. ``ours``: the decision was made just now;
    otherwise its driver may be long gone, and retention does not wait for open transactions."""
    lost = []
    if not ours:
        lost += yield FindRemoved(register.listed)
    for one in register.listed:
        ended: Ended = yield End(one.stored, commit=True)
        if ended is Ended.OTHER or (ended is Ended.UNKNOWN and (yield CheckAborted(one))):
            lost.append(one)
    if lost and (yield Read()) != register:
        raise Superseded(f"another driver of query {query} finished epoch {register.epoch} and has gone on")
    if lost and accepted != register.epoch:
        raise LostRows(register.epoch, tuple(dict.fromkeys(lost)))
    yield from _sweep(query, done(register), keep=tuple(one.stored for one in register.listed))
    return register.listed


def _sweep(query: str, following: Register, keep: tuple[StoredTransaction, ...]) -> Generator[Operation, Any, None]:
    """Abort the query's open transactions, by exact identity, and write ``following`` (P5)."""
    left: list[StoredTransaction] = yield ListOpen(task_prefix(query))
    if not (yield Stage(following)):
        raise FencedDriver(_fenced(query))
    for stored in left:
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
    found: dict[str, Found] = yield Describe(tuple(one.stored.transactional_id for one in listed))
    for one in listed:
        name, producer_id, producer_epoch = one.stored
        if found.get(name) != Found(producer_id, producer_epoch, True):
            raise NotOpen(f"{one} is not open any more, so nothing was decided: start the query again")


def _task_action(register: Register | None, attempt: Attempt, accepted: int | None) -> TaskAction | None:
    """The task's action by the register; None if the run has to begin first. Raises Superseded."""
    match _where(register, attempt, accepted):
        case Standing.WRITE:
            return TaskAction.WRITE
        case Standing.DECIDED | Standing.DONE:
            return TaskAction.DRAIN
    return None


def _where(register: Register | None, attempt: Attempt, accepted: int | None) -> Standing:
    """The attempt's standing, if it may go on. Raises Superseded."""
    where = standing(register, attempt)
    if where is Standing.STALE:
        raise Superseded(_superseded(attempt))
    if where is Standing.BEHIND:
        assert register is not None
        if accepted is None or accepted < register.epoch:
            raise Behind(attempt.query, attempt.epoch, register.epoch)
        return Standing.DONE
    return where


def _superseded(attempt: Attempt) -> str:
    return f"another run of epoch {attempt.epoch} of query {attempt.query} has begun since this one"


def _fenced(what: str) -> str:
    return f"another driver of the query has taken over ({what}); is it running twice on one checkpoint?"
