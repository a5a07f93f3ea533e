"""Histories: writes, polls and commits as clients saw them, and the records of a final drain.

Every write is in it, with a unique value. Times are integers of one clock of all clients: virtual milliseconds in the
simulator, monotonic nanoseconds with real processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from oncelog.base.ids import NO_TOPIC_ID, TopicId, TopicPartition


class RecordedOutcome(Enum):
    """The outcome of a transaction, or of a write outside one, as far as its clients know."""

    # Transaction: the commit was acknowledged. Write: all in-sync replicas acknowledged it.
    COMMITTED = "committed"
    # Transaction: the abort was acknowledged, or no commit was requested. Write: rejected for good.
    ABORTED = "aborted"
    # Transaction: the commit has no response. Write: not acknowledged, or by acks=1 only.
    UNKNOWN = "unknown"


class Write(NamedTuple):
    """A record sent. ``offset``: from the acknowledgement."""

    partition: TopicPartition
    value: str
    offset: int | None = None
    key: str | None = None
    # The record has a null value: `value` comes from a header.
    tombstone: bool = False
    # The response for this record; in a transaction, the transaction's outcome counts too.
    outcome: RecordedOutcome = RecordedOutcome.UNKNOWN
    sent_at: int = 0
    # The time of the acknowledgement.
    answered_at: int | None = None


class GroupPartition(NamedTuple):
    group: str
    partition: TopicPartition


class Completion(NamedTuple):
    """A request to end a prepared transaction. ``agreed``: None without a response, False if rejected for good."""

    commit: bool
    requested_at: int
    agreed: bool | None


@dataclass(frozen=True)
class Transaction:
    """One attempt of one process. ``offsets``: the group's next offsets, if it commits."""

    name: str
    process: str
    writes: Sequence[Write]
    outcome: RecordedOutcome
    # The time of the first commit request.
    ending_at: int | None = None
    offsets: Mapping[GroupPartition, int] = field(default_factory=dict)
    # True once it is prepared in two phases: then only `completions` decide.
    prepared: bool = False
    completions: Sequence[Completion] = ()


def outcome_of(completions: Iterable[Completion]) -> RecordedOutcome:
    """The outcome of a prepared transaction. Without a commit request it is aborted (or still open)."""
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
    """Writes of one producer outside transactions, in order, until the producer was reopened."""

    producer: str
    writes: Sequence[Write]
    idempotent: bool = True


class SeenRecord(NamedTuple):
    offset: int
    value: str
    key: str | None = None


class Poll(NamedTuple):
    """Records of one partition that a consumer received at once."""

    consumer: str
    partition: TopicPartition
    at: int
    records: Sequence[SeenRecord]
    # True if the consumer's position or assignment was reset before this poll.
    sought: bool = False
    read_committed: bool = True
    group: str | None = None
    # The incarnation of the topic; needed only for topics that are deleted and recreated.
    topic_id: TopicId = NO_TOPIC_ID


class Commit(NamedTuple):
    """An offset committed outside transactions. ``answered_at``: None if the outcome is unknown."""

    key: GroupPartition
    offset: int
    requested_at: int
    answered_at: int | None


class OffsetCommitted(NamedTuple):
    """An offset in a transaction whose commit was acknowledged, of a group whose committed offsets only rise."""

    key: GroupPartition
    offset: int
    answered_at: int


class OffsetRead(NamedTuple):
    """An offset from OffsetFetch without ``require_stable``, −1 for none. ``version``: of the request."""

    key: GroupPartition
    offset: int
    requested_at: int
    version: int


class Deletion(NamedTuple):
    """A topic's deletion. ``answered_at``: None if the outcome is unknown."""

    topic: str
    requested_at: int
    answered_at: int | None


class Trim(NamedTuple):
    """A DeleteRecords request up to ``before``, exclusive."""

    partition: TopicPartition
    before: int
    acknowledged: bool


class StartSeen(NamedTuple):
    """A log start as shown to a client. ``at``: by the broker's clock, which may be ahead of the clients'."""

    partition: TopicPartition
    offset: int
    at: int


class Copied(NamedTuple):
    """A topic that is copied into another in transactions. A copy's value is ``anything|value of the source``."""

    source: str
    target: str
    # Commits the progress of the copy.
    group: str


@dataclass(frozen=True)
class History:
    transactions: Sequence[Transaction] = ()
    streams: Sequence[Stream] = ()
    polls: Sequence[Poll] = ()
    # All records that a read_committed consumer gets at the end, from the first offset.
    drained: Mapping[TopicPartition, Sequence[SeenRecord]] = field(default_factory=dict)
    commits: Sequence[Commit] = ()
    offsets_committed: Sequence[OffsetCommitted] = ()
    # OffsetFetch responses of groups whose committed offsets only rise.
    offset_reads: Sequence[OffsetRead] = ()
    # Committed offsets at the end; None if they were not fetched.
    committed_offsets: Mapping[GroupPartition, int] | None = None
    # Groups that start at the earliest offset, and whose polls are all in the history.
    followed_groups: Set[str] = frozenset()
    deletions: Sequence[Deletion] = ()
    # The drained incarnation of each deleted topic.
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)
    # Topics that may lose older values of a key.
    compacted: Set[str] = frozenset()
    # Topics whose retention may raise the log start.
    expiring: Set[str] = frozenset()
    # Log start offsets at the end, by default 0.
    log_starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    trims: Sequence[Trim] = ()
    copies: Sequence[Copied] = ()
    starts_seen: Sequence[StartSeen] = ()
    # Retention by topic, in the unit of all times.
    retained_for: Mapping[str, int] = field(default_factory=dict)
