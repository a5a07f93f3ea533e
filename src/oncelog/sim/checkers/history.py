"""Histories: writes, polls and commits as the clients of a broker saw them, and the records of a drain at the end.

Values are unique in a history, and all that is written is in it. Times are integers of one clock that all clients
share (virtual milliseconds in the simulator, monotonic nanoseconds where processes are real).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from oncelog.base.ids import NO_TOPIC_ID, TopicId, TopicPartition


class RecordedOutcome(Enum):
    """The end of a transaction, or of a write outside of one, as far as its clients know."""

    COMMITTED = "committed"
    """Agreed to; a write: acknowledged by all in-sync replicas."""
    ABORTED = "aborted"
    """Agreed to abort, or never asked to commit; a write: refused for good."""
    UNKNOWN = "unknown"
    """The outcome of a commit that was not answered; of a write that was not acknowledged, or only by acks=1."""


class Write(NamedTuple):
    """A record sent; ``offset`` where the broker named it."""

    partition: TopicPartition
    value: str
    offset: int | None = None
    key: str | None = None
    tombstone: bool = False
    """The record has no value of its own: ``value`` is what a header names it."""
    outcome: RecordedOutcome = RecordedOutcome.UNKNOWN
    """The answer for this record; in a transaction, the transaction's outcome counts as well."""
    sent_at: int = 0
    answered_at: int | None = None
    """When its offset came back."""


class GroupPartition(NamedTuple):
    """A partition of which a group commits offsets."""

    group: str
    partition: TopicPartition


class Completion(NamedTuple):
    """Somebody asked to end a prepared transaction. ``agreed``: None when no answer came, False: refused for good."""

    commit: bool
    asked_at: int
    agreed: bool | None


@dataclass(frozen=True)
class Transaction:
    """One attempt of one process. ``offsets``: what the group reads next, once it is committed."""

    name: str
    process: str
    writes: Sequence[Write]
    outcome: RecordedOutcome
    ending_at: int | None = None
    """When the commit was asked for first."""
    offsets: Mapping[GroupPartition, int] = field(default_factory=dict)
    prepared: bool = False
    """True once it is prepared in two phases: from then on only ``completions`` decide."""
    completions: Sequence[Completion] = ()


def outcome_of(completions: Iterable[Completion]) -> RecordedOutcome:
    """The outcome of a prepared transaction by its completions: never asked to commit is aborted (or still open)."""
    outcome = RecordedOutcome.ABORTED
    for commit, _, agreed in completions:
        if commit and agreed:
            return RecordedOutcome.COMMITTED
        if commit and agreed is None:
            outcome = RecordedOutcome.UNKNOWN
    if outcome is RecordedOutcome.UNKNOWN and any(not commit and agreed for commit, _, agreed in completions):
        return RecordedOutcome.ABORTED
    return outcome


@dataclass(frozen=True)
class Stream:
    """Writes of one producer outside of transactions, in the order it sent them, until it was opened anew."""

    producer: str
    writes: Sequence[Write]
    idempotent: bool = True


class SeenRecord(NamedTuple):
    """A record as a consumer got it."""

    offset: int
    value: str
    key: str | None = None


class Poll(NamedTuple):
    """Records of one partition that a consumer got at once."""

    consumer: str
    partition: TopicPartition
    at: int
    records: Sequence[SeenRecord]
    sought: bool = False
    """True when the consumer began anew before: another position, another assignment."""
    read_committed: bool = True
    group: str | None = None
    topic_id: TopicId = NO_TOPIC_ID
    """The incarnation of the topic; needed only where topics are deleted and created again."""


class Commit(NamedTuple):
    """A group's offset outside of transactions. ``answered_at``: None when nobody knows whether it happened."""

    key: GroupPartition
    offset: int
    asked_at: int
    answered_at: int | None


class OffsetCommitted(NamedTuple):
    """A group's offset in a transaction whose commit was answered; of groups whose committed offsets only rise."""

    key: GroupPartition
    offset: int
    answered_at: int


class OffsetRead(NamedTuple):
    """A group's offset by OffsetFetch; −1: none. ``version``: of the request, without ``require_stable``."""

    key: GroupPartition
    offset: int
    asked_at: int
    version: int


class Deletion(NamedTuple):
    """A topic was deleted. ``answered_at``: None when nobody knows whether it was."""

    topic: str
    asked_at: int
    answered_at: int | None


class Trim(NamedTuple):
    """DeleteRecords up to ``before``, exclusive."""

    partition: TopicPartition
    before: int
    acknowledged: bool


class StartSeen(NamedTuple):
    """The start of a log as a client was told it; ``at`` by the broker's clock, which may be ahead of the clients'."""

    partition: TopicPartition
    offset: int
    at: int


class Copied(NamedTuple):
    """One topic is copied into another in transactions; a copy's value is ``anything|value of the source``."""

    source: str
    target: str
    group: str
    """Commits how far it is."""


@dataclass(frozen=True)
class History:
    transactions: Sequence[Transaction] = ()
    streams: Sequence[Stream] = ()
    polls: Sequence[Poll] = ()
    drained: Mapping[TopicPartition, Sequence[SeenRecord]] = field(default_factory=dict)
    """Everything a read_committed consumer finds at the end, from the beginning."""
    commits: Sequence[Commit] = ()
    offsets_committed: Sequence[OffsetCommitted] = ()
    offset_reads: Sequence[OffsetRead] = ()
    """Answers of OffsetFetch for groups whose committed offsets only rise."""
    committed_offsets: Mapping[GroupPartition, int] | None = None
    """Committed offsets at the end; None: not looked at."""
    followed_groups: Set[str] = frozenset()
    """Groups that begin at the earliest offset and whose polls are all in the history."""
    deletions: Sequence[Deletion] = ()
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)
    """The incarnation that was drained, of topics that were deleted."""
    compacted: Set[str] = frozenset()
    """Topics of which older values of a key may vanish."""
    expiring: Set[str] = frozenset()
    """Topics whose retention may raise the log start."""
    log_starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Log start offsets at the end; 0 where nothing is said."""
    trims: Sequence[Trim] = ()
    copies: Sequence[Copied] = ()
    starts_seen: Sequence[StartSeen] = ()
    retained_for: Mapping[str, int] = field(default_factory=dict)
    """Retention by topic, in the unit of the times."""
