"""Collects what simulated programs did and saw into the history that the checkers read."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from copy import copy
from dataclasses import fields

from oncelog.base.ids import NO_TOPIC_ID, TopicId, TopicPartition
from oncelog.client.errors import ClientError
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.positions import Fetched
from oncelog.client.machine.producer import Failed
from oncelog.client.machine.producer import Outcome as BatchOutcome
from oncelog.sim.checkers.history import (
    Commit,
    Copied,
    Deletion,
    GroupPartition,
    History,
    OffsetCommitted,
    OffsetRead,
    Poll,
    RecordedOutcome,
    SeenRecord,
    StartSeen,
    Stream,
    Transaction,
    Trim,
    Write,
)
from oncelog.sim.virtual.kernel import Kernel

TOMBSTONE_HEADER = "value"
"""A tombstone's record carries what the history calls its value in a header of this name."""


class Writes:
    """The writes of one producer (or one transaction), completed as the answers come.

    Batches of one partition are acknowledged in the order they were sent, so a count is enough to know whose they are.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._writes: dict[str, Write] = {}
        self._waiting: dict[TopicPartition, deque[str]] = {}

    def sending(self, write: Write) -> None:
        """A record is about to be handed to the producer."""
        partition, value, offset, key, tombstone, outcome, _, answered_at = write  # a third of _replace's time
        self._writes[value] = Write(partition, value, offset, key, tombstone, outcome, self._kernel.now_us, answered_at)
        self._waiting.setdefault(write.partition, deque()).append(write.value)

    def take(self, outcome: BatchOutcome) -> None:
        """Complete the writes of a batch by its outcome: the producer's ``on_outcome``."""
        waiting = self._waiting.get(outcome.partition, deque())
        if isinstance(outcome, Failed):
            for record in outcome.records:
                value = value_of(record.value, record.headers)
                if value in waiting:
                    waiting.remove(value)
                if value in self._writes and not outcome.maybe_appended:
                    self._writes[value] = self._writes[value]._replace(outcome=RecordedOutcome.ABORTED)
            return
        for index in range(min(outcome.records, len(waiting))):
            value = waiting.popleft()
            self._writes[value] = self._writes[value]._replace(
                offset=None if outcome.base_offset < 0 else outcome.base_offset + index,
                outcome=RecordedOutcome.COMMITTED,
                answered_at=self._kernel.now_us,
            )

    def all(self) -> list[Write]:
        """Writes in the order they were sent."""
        return list(self._writes.values())


def value_of(value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> str:
    """A record's value in the history: for a tombstone, the value of its header."""
    if value is not None:
        return value.decode()
    return next(((found or b"").decode() for name, found in headers if name == TOMBSTONE_HEADER), "")


def seen(fetched: Fetched, *, read_committed: bool) -> list[SeenRecord]:
    """The records of an answer as the history has them. Raises UnreadableRecords for what is damaged."""
    return [
        SeenRecord(one.offset, value_of(one.value, one.headers), None if one.key is None else one.key.decode())
        for one in read_fetched(fetched, read_committed=read_committed)
    ]


class Recorder:
    """The history in the making; every workload of a simulation shares it."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.transactions: list[Transaction] = []
        self.streams: list[Stream] = []
        self.polls: list[Poll] = []
        self.commits: list[Commit] = []
        self.offsets_committed: list[OffsetCommitted] = []
        self.offset_reads: list[OffsetRead] = []
        self.deletions: list[Deletion] = []
        self.trims: list[Trim] = []
        self.drained: dict[TopicPartition, list[SeenRecord]] = {}
        self.committed_offsets: dict[GroupPartition, int] | None = None
        self.log_starts: dict[TopicPartition, int] = {}
        self.topic_ids: dict[str, TopicId] = {}
        self.followed_groups: set[str] = set()
        self.compacted: set[str] = set()
        self.expiring: set[str] = set()
        self.rewritten: set[str] = set()
        """Topics whose batches the broker changes: it sets times, or compresses anew."""
        self.copies: list[Copied] = []
        self.starts_seen: list[StartSeen] = []
        self.retained_for: dict[str, int] = {}
        """Microseconds, by topic."""
        self.objections: list[str] = []
        """Violations that programs have found, each with its rule."""

    def polled(
        self,
        consumer: str,
        fetched: Fetched,
        *,
        read_committed: bool,
        sought: bool = False,
        group: str | None = None,
        topic_id: TopicId = NO_TOPIC_ID,
    ) -> list[SeenRecord]:
        """Write down records that a consumer got, and return them. Raises ClientError for an answer with an error, and
        UnreadableRecords for damaged records."""
        if fetched.error_code:
            raise ClientError(f"{fetched.partition}: {fetched.error_code}")
        records = seen(fetched, read_committed=read_committed)
        if records or sought:
            poll = Poll(consumer, fetched.partition, self.kernel.now_us, records, sought, read_committed)
            self.polls.append(poll._replace(group=group, topic_id=topic_id))
        return records

    def history(self) -> History:
        """The history so far, by fields of these names."""
        return History(**{field.name: copy(getattr(self, field.name)) for field in fields(History)})
