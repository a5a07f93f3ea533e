"""An index of a history for its rules, worked out once, so that a check stays linear in the records.

The rule of what may be missing is here, once: a record is excused when its topic was deleted after it was sent, when
it lies below the log start, or when its key has a later value on a compacted topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from oncelog.base.ids import NO_TOPIC_ID, TopicId, TopicPartition
from oncelog.sim.checkers.history import History, RecordedOutcome, SeenRecord, Transaction, Write

FOREVER = 1 << 62
Incarnation = tuple[TopicPartition, TopicId]


class HistoryIndex:
    """A history with its writes by value, its reads by consumer, and its missing records."""

    def __init__(self, history: History) -> None:
        self.history = history

    @cached_property
    def visible(self) -> set[str]:
        return {record[1] for records in self.history.drained.values() for record in records}

    @cached_property
    def written(self) -> dict[str, tuple[Write, str, Transaction | None]]:
        """Value → write, who wrote it (transaction or producer), and its transaction."""
        found: dict[str, tuple[Write, str, Transaction | None]] = {}
        for transaction in self.history.transactions:
            for write in transaction.writes:
                found[write.value] = write, transaction.name, transaction
        for stream in self.history.streams:
            for write in stream.writes:
                found[write.value] = write, stream.producer, None
        return found

    @cached_property
    def repeatable(self) -> set[str]:
        """The values of producers that are not idempotent: they may be there several times."""
        return {write.value for stream in self.history.streams if not stream.idempotent for write in stream.writes}

    @cached_property
    def seen(self) -> list[tuple[Incarnation | None, int, str, str]]:
        """(partition and incarnation, offset, value, who); the incarnation is None where it is not known."""
        found: list[tuple[Incarnation | None, int, str, str]] = []
        for poll in self.history.polls:
            place, consumer = self.incarnation(poll.partition, poll.topic_id), poll.consumer
            found += [(place, record[0], record[1], consumer) for record in poll.records]
        for partition, records in self.history.drained.items():
            place = self.incarnation(partition, self.history.topic_ids.get(partition.topic, NO_TOPIC_ID))
            found += [(place, record[0], record[1], "the drain") for record in records]
        return found

    @cached_property
    def deleted(self) -> dict[str, tuple[int, int]]:
        """Topic → (when the first deletion was asked for, when the last was over)."""
        found: dict[str, tuple[int, int]] = {}
        for topic, asked_at, answered_at in self.history.deletions:
            over = FOREVER if answered_at is None else answered_at
            first, last = found.get(topic, (asked_at, over))
            found[topic] = min(first, asked_at), max(last, over)
        return found

    def incarnation(self, partition: TopicPartition, topic_id: TopicId) -> Incarnation | None:
        """The partition of that incarnation; topics that are never deleted have one."""
        if partition.topic not in self.deleted:
            return partition, NO_TOPIC_ID
        return None if topic_id == NO_TOPIC_ID else (partition, topic_id)

    @cached_property
    def missing(self) -> list[tuple[str, Write]]:
        """Committed or acknowledged, not drained, and not excused: (who, write). What was refused is not lost."""
        visible, found = self.visible, []
        for transaction in self.history.transactions:
            if transaction.outcome is RecordedOutcome.COMMITTED:
                name = transaction.name
                absent = [
                    w for w in transaction.writes if w[1] not in visible and w.outcome is not RecordedOutcome.ABORTED
                ]
                found += [(name, w) for w in absent if not self.excused(w)]
        for stream in self.history.streams:
            for write in stream.writes:
                if (
                    write.outcome is RecordedOutcome.COMMITTED
                    and write.value not in visible
                    and not self.excused(write)
                ):
                    found.append((stream.producer, write))
        return found

    def excused(self, write: Write) -> bool:
        """True when a write may be missing though it was acknowledged."""
        deletion = self.deleted.get(write.partition.topic)
        if deletion is not None and write.sent_at <= deletion[1]:
            return True
        start = self.history.log_starts.get(write.partition, 0)
        if start and (write.offset is None or write.offset < start):
            return True
        return write.partition.topic in self.history.compacted and self._superseded(write)

    def _superseded(self, write: Write) -> bool:
        if write.key is None:
            return False
        if write.tombstone:
            return True
        place = write.partition, write.key
        successors = (self._latest.get(place, -1), self._tombstones.get(place, -1))
        return max(successors) > (-1 if write.offset is None else write.offset)

    @cached_property
    def _latest(self) -> Mapping[tuple[TopicPartition, str | None], int]:
        drained = self.history.drained
        return {(partition, record.key): record.offset for partition in drained for record in drained[partition]}

    @cached_property
    def _tombstones(self) -> Mapping[tuple[TopicPartition, str | None], int]:
        """The offset of the last tombstone of each key that may have been written, endless where it is not known."""
        found: dict[tuple[TopicPartition, str | None], int] = {}
        for write, _, transaction in self.written.values():
            outcome = write.outcome if transaction is None else transaction.outcome
            if write.tombstone and outcome is not RecordedOutcome.ABORTED:
                place = write.partition, write.key
                found[place] = max(found.get(place, -1), FOREVER if write.offset is None else write.offset)
        return found

    def last_offset(self, partition: TopicPartition) -> int:
        return max((record.offset for record in self.history.drained.get(partition, ())), default=-1)

    @cached_property
    def reads(self) -> list[tuple[str, TopicPartition, list[int]]]:
        """(consumer, partition, offsets in the order they came), anew after each seek and in each incarnation."""
        runs: dict[tuple[str, Incarnation], list[int]] = {}
        finished: list[tuple[str, TopicPartition, list[int]]] = []
        for poll in sorted(self.history.polls, key=lambda poll: poll.at):
            place = self.incarnation(poll.partition, poll.topic_id)
            if place is None:
                continue
            key = poll.consumer, place
            if poll.sought and key in runs:
                finished.append((poll.consumer, poll.partition, runs.pop(key)))
            runs.setdefault(key, []).extend([record[0] for record in poll.records])
        finished += [(consumer, place[0], offsets) for (consumer, place), offsets in runs.items()]
        return [entry for entry in finished if entry[2]]

    def ordered_writes(self) -> Iterator[tuple[str, list[Write]]]:
        """Producers with what they wrote in the order it was sent, where that order must be kept."""
        by_process: dict[str, list[Write]] = {}
        for transaction in self.history.transactions:
            by_process.setdefault(transaction.process, []).extend(transaction.writes)
        yield from by_process.items()
        for stream in self.history.streams:
            if stream.idempotent:
                yield stream.producer, list(stream.writes)

    @cached_property
    def drained_at(self) -> dict[str, int]:
        """Value → offset."""
        return {record[1]: record[0] for records in self.history.drained.values() for record in records}

    def drained_records(self, partition: TopicPartition) -> list[SeenRecord]:
        """Records that were drained, in the order they came."""
        return list(self.history.drained.get(partition, ()))
