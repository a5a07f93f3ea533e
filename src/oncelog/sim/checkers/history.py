"""What clients saw of a broker: transactions, polls, and what a drain found at the end. Values are unique in a history.

Times are nanoseconds of one clock that all processes share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Outcome(Enum):
    """What the client knows of the end of its transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """Agreed to, or never asked to commit."""
    UNKNOWN = "unknown"
    """Asked to commit, and not answered."""


class Write(NamedTuple):
    """A record sent; ``offset`` where the broker named it."""

    partition: int
    value: str
    offset: int | None = None


@dataclass(frozen=True)
class Transaction:
    """One attempt of one process. ``offsets``: source partition → the next offset to read once it is committed."""

    name: str
    process: str
    writes: Sequence[Write]
    outcome: Outcome
    ending_at: int | None = None
    """When the commit was asked for."""
    offsets: Mapping[int, int] = field(default_factory=dict)


class Seen(NamedTuple):
    """A record as a consumer got it."""

    offset: int
    value: str


@dataclass(frozen=True)
class Poll:
    """What a consumer at read_committed got of one partition at once. ``sought``: it began anew before."""

    consumer: str
    partition: int
    at: int
    records: Sequence[Seen]
    sought: bool = False


@dataclass(frozen=True)
class History:
    """All of it."""

    transactions: Sequence[Transaction] = ()
    polls: Sequence[Poll] = ()
    drained: Mapping[int, Sequence[Seen]] = field(default_factory=dict)
    """Partition → everything a read_committed consumer finds at the end, from the beginning."""
    committed_offsets: Mapping[int, int] | None = None
    """Source partition → what the group has committed at the end; None: not looked at."""
