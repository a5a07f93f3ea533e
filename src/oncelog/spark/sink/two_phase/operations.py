"""What a program of the commit protocol asks for, and what it is answered: the port to a cluster."""

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
    """Write the register in a transaction of the query's id. Answer: whether it was; False when we are fenced."""

    register: Register


@dataclass(frozen=True, slots=True)
class Stage:
    """As ``Write``, but only begun: True says that we were not fenced yet. ``Publish`` makes it visible."""

    register: Register


@dataclass(frozen=True, slots=True)
class Publish:
    """Commit what was staged. Answer: whether it was."""


@dataclass(frozen=True, slots=True)
class Describe:
    """What the coordinators know of these ids. Answer: id → Found, without ids they do not know."""

    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListOpen:
    """The open transactions of ids that begin with ``prefix``, and the identities of tasks' ids that were claimed and
    not used since. Answer: a sequence of StoredTransaction."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Ticket:
    """InitProducerId on an id of its own, whoever has it. Answer: the epoch, another one each time it is asked."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class ReadLedger:
    """The last epoch that mode ``ledger`` has written for a task, by its ticket id. Answer: int or None."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class FindLedger:
    """Whether mode ``ledger`` has written anything for ids that begin with ``prefix``. Answer: bool."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Claim:
    """InitProducerId on a task's id, if its identity still is ``found`` (None: if the id does not exist).

    Answer: the new identity (StoredTransaction), or None when somebody else has come."""

    transactional_id: str
    found: Found | None


@dataclass(frozen=True, slots=True)
class FindRemoved:
    """Which of these transactions' rows are before the beginning of their logs. Answer: a sequence of Listed."""

    listed: tuple[Listed, ...]


@dataclass(frozen=True, slots=True)
class CheckAborted:
    """Whether the log shows that a transaction nobody knows any more was aborted. False where it cannot tell."""

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
    """What an EndTxn came to."""

    DONE = "carried out, now or before"
    UNKNOWN = "the id is not known (any more)"
    OTHER = "it has another identity or outcome by now"
