"""Collects the actions and observations of simulated programs into the history for the checkers."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from copy import copy
from dataclasses import fields

from oncelog.base.ids import NO_TOPIC_ID, TopicId, TopicPartition
from oncelog.client.errors import ClientError
from oncelog.client.machine.consumed_records import ConsumedRecord, read_fetched
from oncelog.client.machine.pending_batch import BatchOutcome, Failed
from oncelog.client.machine.positions import Fetched
from oncelog.client.machine.share.values import ShareRecord
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
from oncelog.sim.checkers.share_groups import ShareGroupsSeen
from oncelog.sim.virtual.kernel import Kernel

# The header that holds a tombstone's value for the history.
TOMBSTONE_HEADER = "value"


class Writes:
    """The writes of one producer (or transaction), completed by the responses: batches of a partition are acknowledged
    in order, so counting suffices.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._writes: dict[str, Write] = {}
        self._pending: dict[TopicPartition, deque[str]] = {}

    def sending(self, write: Write) -> None:
        partition, value, offset, key, tombstone, outcome, _, answered_at = (
            write  # takes a third of the time of _replace
        )
        self._writes[value] = Write(partition, value, offset, key, tombstone, outcome, self._kernel.now_us, answered_at)
        self._pending.setdefault(write.partition, deque()).append(write.value)

    def add_outcome(self, outcome: BatchOutcome) -> None:
        """The producer's ``on_outcome``: complete the writes of a batch."""
        pending = self._pending.get(outcome.partition, deque())
        if isinstance(outcome, Failed):
            for record in outcome.records:
                value = value_of(record.value, record.headers)
                if value in pending:
                    pending.remove(value)
                if value in self._writes and not outcome.maybe_appended:
                    self._writes[value] = self._writes[value]._replace(outcome=RecordedOutcome.ABORTED)
            return
        for index in range(min(outcome.records, len(pending))):
            value = pending.popleft()
            self._writes[value] = self._writes[value]._replace(
                offset=None if outcome.base_offset < 0 else outcome.base_offset + index,
                outcome=RecordedOutcome.COMMITTED,
                answered_at=self._kernel.now_us,
            )

    def all(self) -> list[Write]:
        return list(self._writes.values())


def value_of(value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> str:
    """A record's value in the history: for a tombstone, that of its header."""
    if value is not None:
        return value.decode()
    return next(((header_value or b"").decode() for name, header_value in headers if name == TOMBSTONE_HEADER), "")


def seen(fetched: Fetched, *, read_committed: bool) -> list[SeenRecord]:
    """Convert fetched records for the history. Raises UnreadableRecords for damaged ones."""
    return [seen_record(record) for record in read_fetched(fetched, read_committed=read_committed)]


def seen_record(record: ConsumedRecord | ShareRecord) -> SeenRecord:
    key = None if record.key is None else record.key.decode()
    return SeenRecord(record.offset, value_of(record.value, record.headers), key)


class Recorder:
    """The growing history, shared by all workloads of a simulation."""

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
        # Topics whose batches the broker changes: it sets timestamps or recompresses.
        self.rewritten: set[str] = set()
        self.copies: list[Copied] = []
        self.starts_seen: list[StartSeen] = []
        # Microseconds, by topic.
        self.retained_for: dict[str, int] = {}
        self.share_groups = ShareGroupsSeen()
        # Violations found by programs, each with its rule.
        self.violations: list[str] = []

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
        """Record what a consumer received, and return it. Raises ClientError for a partition error, UnreadableRecords
        for damage.
        """
        if fetched.error_code:
            raise ClientError(f"{fetched.partition}: {fetched.error_code}")
        records = seen(fetched, read_committed=read_committed)
        if records or sought:
            poll = Poll(consumer, fetched.partition, self.kernel.now_us, records, sought, read_committed)
            self.polls.append(poll._replace(group=group, topic_id=topic_id))
        return records

    def history(self) -> History:
        """The history so far; its fields are named like the attributes."""
        return History(**{field.name: copy(getattr(self, field.name)) for field in fields(History)})
