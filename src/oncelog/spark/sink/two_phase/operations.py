"""Operations of the commit protocol and their answers: the port between the pure programs and a cluster."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from oncelog.client.machine.transaction_values import StoredTransaction
from oncelog.spark.sink.two_phase.register import Listed, Register


@dataclass(frozen=True, slots=True)
class Fence:
    """InitProducerId on the query's id. Answer: None."""


@dataclass(frozen=True, slots=True)
class Read:
    """The register as it is now: every write that was answered before is in it. Answer: Register or None."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write the register in a transaction of the query's id. Answer: True if it was written, False if we are fenced."""

    register: Register


@dataclass(frozen=True, slots=True)
class Stage:
    """Write the register without committing it. Answer: True if we are not fenced yet. ``Publish`` makes it visible."""

    register: Register


@dataclass(frozen=True, slots=True)
class Publish:
    """Commit the staged register. Answer: True if it was committed."""


@dataclass(frozen=True, slots=True)
class Describe:
    """Describe the identities of transactional ids. Answer: id → Found, without ids that no coordinator knows."""

    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListOpen:
    """List the open transactions of ids that begin with ``prefix``, and the identities of tasks' ids that were claimed
    and not used since. Answer: a sequence of StoredTransaction."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Ticket:
    """InitProducerId on a task's ticket id, whichever attempt has it. Answer: the epoch, another one each time."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class ReadLedger:
    """Read the last epoch that mode ``ledger`` has written for a task, by its ticket id. Answer: int or None."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class FindLedger:
    """Look for groups of mode ``ledger`` whose ids begin with ``prefix``. Answer: True if there are any."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Claim:
    """InitProducerId on a task's id, if its identity still is ``found`` (None: if the id does not exist).

    Answer: the new identity (StoredTransaction), or None if the id has another identity by now."""

    transactional_id: str
    found: Found | None


@dataclass(frozen=True, slots=True)
class FindRemoved:
    """Find transactions whose rows are below their logs' start offsets. Answer: a sequence of Listed."""

    listed: tuple[Listed, ...]


@dataclass(frozen=True, slots=True)
class CheckAborted:
    """Look in the log for the rows of a transaction that no coordinator knows any more. Answer: True if they are there,
    aborted; False also if the log cannot tell."""

    listed: Listed


@dataclass(frozen=True, slots=True)
class End:
    """EndTxn by a stored identity, from this process. Answer: Ended."""

    stored: StoredTransaction
    commit: bool


Operation = (
    Fence
    | Read
    | Write
    | Stage
    | Publish
    | Describe
    | ListOpen
    | Ticket
    | ReadLedger
    | FindLedger
    | Claim
    | CheckAborted
    | FindRemoved
    | End
)
Program = Generator[Operation, Any, Any]


class Found(NamedTuple):
    """The present identity of a transactional id."""

    producer_id: int
    producer_epoch: int
    is_open: bool


class Ended(Enum):
    """The outcome of an EndTxn."""

    DONE = "carried out, now or before"
    UNKNOWN = "the id is not known (any more)"
    OTHER = "it has another identity or outcome by now"
