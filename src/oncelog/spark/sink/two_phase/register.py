"""The register of a query's latest epoch: one value for each query, in the compacted topic ``__oncelog_sink``.

The key is the query id, so compaction leaves one record a query; an epoch is decided before the next one begins, so the
latest is enough. The value changes only by ``NEXT``, written transactionally by who holds the query's transactional id
``oncelog-sink/<query id>`` and has read the value since it took that id: whoever takes it later fences the writer.
So the first decision for an epoch wins, and there is no second.

State     contract
--------  --------------------------------------------------------------------------------------------------------
BEGUN     run ``run`` of the epoch may open transactions and may be decided; those in ``superseded`` may not any more
DECIDED   the commit point has passed: exactly ``listed`` is committed, whatever happens; nobody touches those ids
DONE      all of ``listed`` is committed, everything else of the query was aborted; the next epoch may begin

Invariants, quoted by the machine's tests:

R1  An epoch is decided at most once; what is listed never changes.
R2  Only the run that began last is decided, and only while each listed transaction was seen open in its own identity.
R3  Epochs do not fall, and an epoch begins only when the one before is not DECIDED.
R4  A run that was superseded never writes, decides or sweeps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple

from oncelog.client.machine.transaction_values import StoredTransaction
from oncelog.spark.session.errors import SinkError

UNKNOWN: Final = -1
ONE_WRITE: Final = "run:"
"""Prefix of the query id of a batch write without a name; of one with a name: ``JOB``."""
JOB: Final = "job:"
KEPT_RUNS: Final = 64
"""Superseded runs that are remembered of an epoch; a zombie of an older one is long dead."""


class State(Enum):
    """States of a register, with their contracts in the table above."""

    BEGUN = "begun"
    DECIDED = "decided"
    DONE = "done"


class Written(NamedTuple):
    """Rows of one task in one partition: first and last offset, both inclusive, −1 where the broker did not say."""

    topic: str
    partition: int
    rows: int
    first_offset: int
    last_offset: int

    def __str__(self) -> str:
        where = f" at offsets {self.first_offset}–{self.last_offset}" if self.first_offset >= 0 else ""
        return f"{self.rows} rows of {self.topic}-{self.partition}{where}"


class Listed(NamedTuple):
    """A transaction that a decision names: the identity to end, and the rows in it."""

    stored: StoredTransaction
    rows: int
    written: tuple[Written, ...] = ()

    def __str__(self) -> str:
        what = ", ".join(map(str, self.written)) or f"{self.rows} rows"
        return f"{what} ({self.stored.transactional_id})"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A run of an epoch of a query. ``run`` is drawn anew each time Spark plans the epoch."""

    query: str
    epoch: int
    run: str


@dataclass(frozen=True, slots=True)
class Register:
    """A register's value; its contract is in the table above."""

    epoch: int
    run: str
    state: State
    listed: tuple[Listed, ...] = ()
    superseded: tuple[str, ...] = ()
    rows: int = UNKNOWN
    """Rows that the tasks of a decided epoch were given."""


NEXT: Final[dict[State | None, frozenset[State]]] = {
    None: frozenset({State.BEGUN, State.DECIDED}),
    State.BEGUN: frozenset({State.BEGUN, State.DECIDED}),
    State.DECIDED: frozenset({State.DONE}),
    State.DONE: frozenset({State.BEGUN, State.DECIDED}),
}
"""DECIDED without BEGUN is an epoch in which no task had a row: it lists nothing."""


class Standing(Enum):
    """A run's standing by the register: what it may do."""

    BEGIN = "nobody has begun it, or only a run before: begin"
    WRITE = "it is ours and undecided: write, decide"
    FINISH_FIRST = "the epoch before is decided and not done: finish that, then begin"
    DECIDED = "it was decided: write nothing, finish it"
    DONE = "it is over: write nothing"
    BEHIND = "a later one was begun already"
    STALE = "another run of it has begun since: stop"


def standing(register: Register | None, attempt: Attempt) -> Standing:
    """The standing of ``attempt`` by the register."""
    if register is None:
        return Standing.BEGIN
    if register.epoch < attempt.epoch:
        return Standing.FINISH_FIRST if register.state is State.DECIDED else Standing.BEGIN
    if register.epoch > attempt.epoch:
        return Standing.BEHIND
    if register.state is State.DONE:
        return Standing.DONE
    if register.state is State.DECIDED:
        return Standing.DECIDED
    if register.run == attempt.run:
        return Standing.STALE if attempt.run in register.superseded else Standing.WRITE
    return Standing.STALE if attempt.run in register.superseded else Standing.BEGIN


def begun(register: Register | None, attempt: Attempt) -> Register:
    """The register after ``attempt`` has begun; the run before it, if of the same epoch, is superseded."""
    _check(register, State.BEGUN, attempt.epoch)
    before: tuple[str, ...] = ()
    if register is not None and register.epoch == attempt.epoch:
        before = (*register.superseded, register.run)[-KEPT_RUNS:]
    return Register(attempt.epoch, attempt.run, State.BEGUN, superseded=before)


def decided(register: Register | None, attempt: Attempt, listed: tuple[Listed, ...], rows: int = UNKNOWN) -> Register:
    """The register with the decision of ``attempt``."""
    _check(register, State.DECIDED, attempt.epoch)
    return Register(attempt.epoch, attempt.run, State.DECIDED, listed, rows=rows)


def done(register: Register) -> Register:
    """The register when all that was decided is carried out. The list is not needed any more."""
    _check(register, State.DONE, register.epoch)
    return replace(register, state=State.DONE, listed=())


def given_up(register: Register) -> Register:
    """The register when Spark has given up the run that began last: nothing of it may be decided."""
    _check(register, State.BEGUN, register.epoch)
    return replace(register, superseded=(*register.superseded, register.run)[-KEPT_RUNS:])


def _check(register: Register | None, following: State, epoch: int) -> None:
    state = None if register is None else register.state
    if following not in NEXT[state] or (register is not None and register.epoch > epoch):
        raise SinkError(f"epoch {epoch} cannot be {following.value}: the register says {register}")
