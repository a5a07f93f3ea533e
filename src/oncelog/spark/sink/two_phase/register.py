"""The register of a query's latest epoch: one value per query, in the compacted topic ``__oncelog_sink``.

The value changes only as ``NEXT`` allows, in a transaction of the query's transactional id ``oncelog-sink/<query id>``,
by a holder of the id that has read the value since it took the id. A later holder fences the writer, so the first
decision for an epoch wins. An epoch is decided before the next one begins, so the latest is enough.

Invariants, quoted by the machine's tests:

R1  An epoch is decided at most once; its list never changes.
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
# Prefix of the query id of a batch write without a name; ``JOB`` is the prefix of a named one.
ONE_WRITE: Final = "run:"
JOB: Final = "job:"
# Superseded runs remembered for an epoch; a zombie of an older run is long dead.
KEPT_RUNS: Final = 64


class RegisterState(Enum):
    # Run ``run`` of the epoch may open transactions and may be decided; those in ``superseded`` no longer may.
    BEGUN = "begun"
    # The commit point has passed: exactly ``listed`` is committed, whatever happens; their ids are not reused.
    DECIDED = "decided"
    # All of ``listed`` is committed, everything else of the query was aborted; the next epoch may begin.
    DONE = "done"


class Written(NamedTuple):
    """Rows of one task in one partition; offsets are inclusive, −1 if the broker did not return them."""

    topic: str
    partition: int
    rows: int
    first_offset: int
    last_offset: int

    def __str__(self) -> str:
        offsets = f" at offsets {self.first_offset}–{self.last_offset}" if self.first_offset >= 0 else ""
        return f"{self.rows} rows of {self.topic}-{self.partition}{offsets}"


class Listed(NamedTuple):
    """A transaction that a decision names: the identity to end, and its rows."""

    stored: StoredTransaction
    rows: int
    written: tuple[Written, ...] = ()

    def __str__(self) -> str:
        rows = ", ".join(map(str, self.written)) or f"{self.rows} rows"
        return f"{rows} ({self.stored.transactional_id})"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A run of an epoch of a query. ``run`` is a new random value each time Spark plans the epoch."""

    query: str
    epoch: int
    run: str


@dataclass(frozen=True, slots=True)
class Register:
    epoch: int
    run: str
    state: RegisterState
    listed: tuple[Listed, ...] = ()
    superseded: tuple[str, ...] = ()
    # Rows that the tasks of a decided epoch received.
    rows: int = UNKNOWN


# DECIDED without BEGUN is an epoch in which no task had rows: it lists nothing.
NEXT: Final[dict[RegisterState | None, frozenset[RegisterState]]] = {
    None: frozenset({RegisterState.BEGUN, RegisterState.DECIDED}),
    RegisterState.BEGUN: frozenset({RegisterState.BEGUN, RegisterState.DECIDED}),
    RegisterState.DECIDED: frozenset({RegisterState.DONE}),
    RegisterState.DONE: frozenset({RegisterState.BEGUN, RegisterState.DECIDED}),
}


class Standing(Enum):
    BEGIN = "no run has begun the epoch, or only an earlier one: begin"
    WRITE = "the epoch is ours and undecided: write, decide"
    FINISH_FIRST = "the previous epoch is decided but not done: finish it, then begin"
    DECIDED = "the epoch was decided: write nothing, finish it"
    DONE = "the epoch is done: write nothing"
    BEHIND = "a later epoch has already begun"
    STALE = "another run of the epoch has begun since: stop"


def standing(register: Register | None, attempt: Attempt) -> Standing:
    if register is None:
        return Standing.BEGIN
    if register.epoch < attempt.epoch:
        return Standing.FINISH_FIRST if register.state is RegisterState.DECIDED else Standing.BEGIN
    if register.epoch > attempt.epoch:
        return Standing.BEHIND
    if register.state is RegisterState.DONE:
        return Standing.DONE
    if register.state is RegisterState.DECIDED:
        return Standing.DECIDED
    if register.run == attempt.run:
        return Standing.STALE if attempt.run in register.superseded else Standing.WRITE
    return Standing.STALE if attempt.run in register.superseded else Standing.BEGIN


def begun(register: Register | None, attempt: Attempt) -> Register:
    """The register after ``attempt`` begins; an earlier run of the same epoch becomes superseded."""
    _check(register, RegisterState.BEGUN, attempt.epoch)
    before: tuple[str, ...] = ()
    if register is not None and register.epoch == attempt.epoch:
        before = (*register.superseded, register.run)[-KEPT_RUNS:]
    return Register(attempt.epoch, attempt.run, RegisterState.BEGUN, superseded=before)


def decided(register: Register | None, attempt: Attempt, listed: tuple[Listed, ...], rows: int = UNKNOWN) -> Register:
    _check(register, RegisterState.DECIDED, attempt.epoch)
    return Register(attempt.epoch, attempt.run, RegisterState.DECIDED, listed, rows=rows)


def done(register: Register) -> Register:
    """The register after the decision was carried out. The list is no longer needed."""
    _check(register, RegisterState.DONE, register.epoch)
    return replace(register, state=RegisterState.DONE, listed=())


def abandoned(register: Register) -> Register:
    """The register after Spark abandoned the latest run: nothing of it may be decided."""
    _check(register, RegisterState.BEGUN, register.epoch)
    return replace(register, superseded=(*register.superseded, register.run)[-KEPT_RUNS:])


def _check(register: Register | None, following: RegisterState, epoch: int) -> None:
    state = None if register is None else register.state
    if following not in NEXT[state] or (register is not None and register.epoch > epoch):
        raise SinkError(f"epoch {epoch} cannot be {following.value}: the register says {register}")
