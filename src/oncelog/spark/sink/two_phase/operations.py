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
    """InitProducerId with the query's id. Answer: None."""


@dataclass(frozen=True, slots=True)
class Read:
    """Read the register, including every write answered before. Answer: Register or None."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write the register in a transaction of the query's id. Answer: True if written, False if fenced."""

    register: Register


@dataclass(frozen=True, slots=True)
class Stage:
    """Write the register without committing it; ``Publish`` makes it visible. Answer: True if not fenced yet."""

    register: Register


@dataclass(frozen=True, slots=True)
class Publish:
    """Commit the staged register. Answer: True if it was committed."""


@dataclass(frozen=True, slots=True)
class Describe:
    """Look up the identities of transactional ids. Answer: id → Identity, without ids unknown to all coordinators."""

    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListOpen:
    """List the open transactions of ids with ``prefix``, and task ids claimed and not used since. Answer:
    StoredTransactions."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Ticket:
    """InitProducerId with a task's ticket id, whatever attempt holds it. Answer: the epoch, a new one each time."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class ReadLedger:
    """Read the last epoch that mode ``ledger`` wrote for a task, by its ticket id. Answer: int or None."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class FindLedger:
    """Look for groups of mode ``ledger`` with ``prefix``. Answer: True if there are any."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Claim:
    """InitProducerId with a task's id, if its identity is still ``expected`` (None: the id does not exist). Answer: the
    new StoredTransaction, or None if the id has another identity by now."""

    transactional_id: str
    expected: Identity | None


@dataclass(frozen=True, slots=True)
class FindRemoved:
    """Find transactions with rows below their log's start offset. Answer: a sequence of Listed."""

    listed: tuple[Listed, ...]


@dataclass(frozen=True, slots=True)
class CheckAborted:
    """Search the log for the rows of a transaction unknown to all coordinators. Answer: True if they are there and
    aborted; False also if the log cannot tell."""

    listed: Listed


@dataclass(frozen=True, slots=True)
class End:
    """EndTxn with a stored identity, from this process. Answer: Ended."""

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


class Identity(NamedTuple):
    producer_id: int
    producer_epoch: int
    is_open: bool


class Ended(Enum):
    DONE = "carried out, now or before"
    UNKNOWN = "the id is not known (any more)"
    OTHER = "it has another identity or outcome by now"
