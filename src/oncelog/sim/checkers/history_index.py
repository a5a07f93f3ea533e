"""An index of a history for the rules: each view is computed once, so that a check is linear in the records.

It alone decides which records may be missing: those of a topic deleted after they were sent, below the log start, or
superseded by a later value of the key on a compacted topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from oncelog.base.ids import NO_TOPIC_ID, TopicId, TopicPartition
from oncelog.sim.checkers.history import History, RecordedOutcome, SeenRecord, Transaction, Write

FOREVER = 1 << 62
Incarnation = tuple[TopicPartition, TopicId]


class HistoryIndex:
    def __init__(self, history: History) -> None:
        self.history = history

    @cached_property
    def visible(self) -> set[str]:
        return {record[1] for records in self.history.drained.values() for record in records}

    @cached_property
    def written(self) -> dict[str, tuple[Write, str, Transaction | None]]:
        """Value → (write, its transaction's or producer's name, its transaction)."""
        writes: dict[str, tuple[Write, str, Transaction | None]] = {}
        for transaction in self.history.transactions:
            for write in transaction.writes:
                writes[write.value] = write, transaction.name, transaction
        for stream in self.history.streams:
            for write in stream.writes:
                writes[write.value] = write, stream.producer, None
        return writes

    @cached_property
    def repeatable(self) -> set[str]:
        """Values of producers without idempotence."""
        return {write.value for stream in self.history.streams if not stream.idempotent for write in stream.writes}

    @cached_property
    def seen(self) -> list[tuple[Incarnation | None, int, str, str]]:
        """(partition and incarnation, or None if unknown; offset; value; reader)."""
        seen: list[tuple[Incarnation | None, int, str, str]] = []
        for poll in self.history.polls:
            log, consumer = self.incarnation(poll.partition, poll.topic_id), poll.consumer
            seen += [(log, record[0], record[1], consumer) for record in poll.records]
        for partition, records in self.history.drained.items():
            log = self.incarnation(partition, self.history.topic_ids.get(partition.topic, NO_TOPIC_ID))
            seen += [(log, record[0], record[1], "the drain") for record in records]
        return seen

    @cached_property
    def deleted(self) -> dict[str, tuple[int, int]]:
        """Topic → (time of the first deletion's request, time of the last deletion's response)."""
        spans: dict[str, tuple[int, int]] = {}
        for topic, requested_at, answered_at in self.history.deletions:
            ended_at = FOREVER if answered_at is None else answered_at
            first, last = spans.get(topic, (requested_at, ended_at))
            spans[topic] = min(first, requested_at), max(last, ended_at)
        return spans

    def incarnation(self, partition: TopicPartition, topic_id: TopicId) -> Incarnation | None:
        # The partition of that incarnation. Topics that are never deleted have one incarnation without an id.
        if partition.topic not in self.deleted:
            return partition, NO_TOPIC_ID
        return None if topic_id == NO_TOPIC_ID else (partition, topic_id)

    @cached_property
    def missing(self) -> list[tuple[str, Write]]:
        """(transaction or producer, write) for each committed or acknowledged write that is not drained and not
        excused.
        """
        visible, missing = self.visible, []
        for transaction in self.history.transactions:
            if transaction.outcome is RecordedOutcome.COMMITTED:
                name = transaction.name
                # A rejected write is not lost, even in a committed transaction.
                absent = [
                    w for w in transaction.writes if w[1] not in visible and w.outcome is not RecordedOutcome.ABORTED
                ]
                missing += [(name, w) for w in absent if not self.excused(w)]
        for stream in self.history.streams:
            for write in stream.writes:
                if (
                    write.outcome is RecordedOutcome.COMMITTED
                    and write.value not in visible
                    and not self.excused(write)
                ):
                    missing.append((stream.producer, write))
        return missing

    def excused(self, write: Write) -> bool:
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
        key = write.partition, write.key
        successors = (self._latest.get(key, -1), self._tombstones.get(key, -1))
        return max(successors) > (-1 if write.offset is None else write.offset)

    @cached_property
    def _latest(self) -> Mapping[tuple[TopicPartition, str | None], int]:
        drained = self.history.drained
        return {(partition, record.key): record.offset for partition in drained for record in drained[partition]}

    @cached_property
    def _tombstones(self) -> Mapping[tuple[TopicPartition, str | None], int]:
        # The offset of each key's last tombstone that may have been written; FOREVER if it is unknown.
        offsets: dict[tuple[TopicPartition, str | None], int] = {}
        for write, _, transaction in self.written.values():
            outcome = write.outcome if transaction is None else transaction.outcome
            if write.tombstone and outcome is not RecordedOutcome.ABORTED:
                key = write.partition, write.key
                offsets[key] = max(offsets.get(key, -1), FOREVER if write.offset is None else write.offset)
        return offsets

    def last_offset(self, partition: TopicPartition) -> int:
        return max((record.offset for record in self.history.drained.get(partition, ())), default=-1)

    @cached_property
    def reads(self) -> list[tuple[str, TopicPartition, list[int]]]:
        """(consumer, partition, offsets in order of arrival), one entry per seek and incarnation."""
        runs: dict[tuple[str, Incarnation], list[int]] = {}
        finished: list[tuple[str, TopicPartition, list[int]]] = []
        for poll in sorted(self.history.polls, key=lambda poll: poll.at):
            log = self.incarnation(poll.partition, poll.topic_id)
            if log is None:
                continue
            key = poll.consumer, log
            if poll.sought and key in runs:
                finished.append((poll.consumer, poll.partition, runs.pop(key)))
            runs.setdefault(key, []).extend([record[0] for record in poll.records])
        finished += [(consumer, log[0], offsets) for (consumer, log), offsets in runs.items()]
        return [entry for entry in finished if entry[2]]

    def ordered_writes(self) -> Iterator[tuple[str, list[Write]]]:
        """(producer, its writes in order) for producers that must keep the order."""
        by_process: dict[str, list[Write]] = {}
        for transaction in self.history.transactions:
            by_process.setdefault(transaction.process, []).extend(transaction.writes)
        yield from by_process.items()
        for stream in self.history.streams:
            if stream.idempotent:
                yield stream.producer, list(stream.writes)

    @cached_property
    def drained_at(self) -> dict[str, int]:
        return {record[1]: record[0] for records in self.history.drained.values() for record in records}

    def drained_records(self, partition: TopicPartition) -> list[SeenRecord]:
        return list(self.history.drained.get(partition, ()))
