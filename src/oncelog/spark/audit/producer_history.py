"""Follows one producer on one partition through its facts in offset order; yields its transactions and findings.

The state is the one a broker keeps when it reads the log (KIP-98, KIP-360, KIP-890): epoch, last sequence, open
transaction. Data that a broker would have rejected is a finding, and the state continues from the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Final

from oncelog.base.ids import CONSUMER_OFFSETS, INTERNAL_TOPICS, TopicName, TopicPartition, partition_of_directory
from oncelog.base.units import INT32_MAX
from oncelog.spark.audit.audit_context import AuditContext, PartitionContext
from oncelog.spark.audit.coordinator_decisions import Decisions
from oncelog.spark.audit.model import FACT_GROUP, NONE, Fact, Finding, Part, Rank, TransactionOutcome
from oncelog.spark.audit.segments.internal_topics import committed_offset

# Preliminary fate of an open transaction that was begun by a late write.
LATE: Final = "late"
HALF: Final = 1 << 30
# Findings of one kind that a history reports individually.
_SHOWN: Final = 100
FATES: Final = {
    TransactionOutcome.COMMITTED: "committed",
    TransactionOutcome.ABORTED: "aborted",
    TransactionOutcome.UNKNOWN: "unknown",
}
HistoryRow = Part | Fact | Finding


def histories(facts: Iterable[Fact], context: AuditContext) -> Iterator[HistoryRow]:
    """Follow every producer on every partition; ``facts`` are in FACT_ORDER."""
    for (topic, partition, replica, _), group in groupby(facts, key=attrgetter(*FACT_GROUP)):
        place = context.partitions.get(TopicPartition(TopicName(topic), partition))
        if place is not None:
            yield from ProducerHistory(place, context, primary=replica == place.primary).follow(group)


class ProducerHistory:
    """The state of one producer on one replica of a partition. Memory: one open transaction, and the coordinator's
    decisions about it here."""

    def __init__(self, place: PartitionContext, context: AuditContext, *, primary: bool) -> None:
        self._partition, self._context, self._primary = place, context, primary
        self._epoch = self._highest_epoch = -1
        self._last_sequence = self._last_offset = -1
        self._last_timestamp = -1
        self._coordinator_epoch = -1
        self._seen_until = -1
        self._open: Part | None = None
        # First offset of the open transaction, as a broker would track it.
        self._first_by_broker = -1
        self._marker: Fact | None = None
        self._entry: Fact | None = None
        self._commits: list[Fact] = []
        self._decisions = Decisions(whole=place.is_whole)
        self._counts: dict[str, int] = {}

    def follow(self, facts: Iterable[Fact]) -> Iterator[HistoryRow]:
        fact: Fact | None = None
        for fact in facts:
            yield from self._stray_entry(fact.offset, fact.rank)
            rank = fact.rank
            if rank in (Rank.DATA, Rank.MARKER):
                yield from self._close_at_hole(fact)
            if rank == Rank.DATA:
                yield from self._add_data(fact)
            elif rank == Rank.MARKER:
                yield from self._end_transaction(fact)
            elif rank == Rank.DECISION:
                self._decisions.add(fact)
            elif rank == Rank.SNAPSHOT:
                yield from self._check_snapshot(fact)
            elif rank == Rank.INDEX_ENTRY:
                self._entry = fact
            elif rank == Rank.COMMIT:
                self._commits.append(fact)
        if fact is not None:
            yield from self._finish(fact)

    def _close_at_hole(self, following: Fact) -> Iterator[HistoryRow]:
        # Close the open transaction at a hole: its end and the beginning of the next may be missing.
        if self._seen_until < 0 or not self._partition.missing_between(
            following.replica, self._seen_until, following.offset
        ):
            return
        if self._open is not None and self._primary:
            yield self._open._replace(fate="unknown", transactional_id=self._decisions.transactional_id)
        self._open, self._first_by_broker = None, -1
        self._commits.clear()

    def _add_data(self, fact: Fact) -> Iterator[HistoryRow]:
        # A broker rejects a fenced epoch (KIP-98).
        if fact.epoch < self._highest_epoch:
            text = f"written with epoch {fact.epoch} after epoch {self._highest_epoch}"
            if self._marker is not None:
                text += f", after the marker at offset {self._marker.offset}"
            yield from self._report("late-write", fact, text)
        elif fact.topic not in INTERNAL_TOPICS and fact.first_sequence >= 0:
            yield from self._check_sequence(fact)
        if self._open is not None and fact.epoch > self._open.epoch:
            text = f"epoch {fact.epoch} wrote while epoch {self._open.epoch}'s transaction had no marker"
            yield from self._report("torn", fact, text)
            if self._primary:
                yield self._open._replace(fate="torn", transactional_id=self._decisions.transactional_id)
            self._open = None
        if fact.transactional:
            self._in_transaction(fact)
        elif self._open is not None:
            yield from self._report("batch", fact, "not transactional, while the producer's transaction is open")
        if fact.epoch != self._epoch:
            self._epoch = fact.epoch
        self._highest_epoch = max(self._highest_epoch, fact.epoch)
        if fact.last_sequence >= 0:
            self._last_sequence = fact.last_sequence
        self._last_offset, self._last_timestamp = fact.last_offset, fact.last_timestamp
        self._seen_until = fact.last_offset

    def _check_sequence(self, fact: Fact) -> Iterator[HistoryRow]:
        if self._epoch < 0:
            return  # the log does not know the producer: a broker accepts any sequence
        same_epoch = fact.epoch == self._epoch
        expected = (self._last_sequence + 1) & INT32_MAX if same_epoch and self._last_sequence >= 0 else 0
        if same_epoch and self._last_sequence < 0 and self._last_offset >= 0:
            return
        if fact.first_sequence == expected:
            return
        # Sequences wrap around: a distance below half of the range counts as behind.
        behind = (expected - fact.first_sequence) & INT32_MAX
        mismatch = f"sequence {fact.first_sequence} where {expected} is next"
        if same_epoch and behind < HALF:
            yield from self._report("duplicate", fact, f"{mismatch}: written before")
        # Compaction, retention or damage may have removed the batches before.
        elif not self._excused(fact):
            yield from self._report(
                "gap", fact, mismatch if same_epoch else f"{mismatch}, at the first batch of epoch {fact.epoch}"
            )

    def _excused(self, fact: Fact) -> bool:
        # True if batches may be missing, or the broker may have forgotten the producer.
        idle = fact.first_timestamp - self._last_timestamp
        return (
            self._partition.cleaned
            or idle >= self._context.limits.producer_id_expiration_ms
            or self._partition.damaged_between(fact.replica, self._seen_until, fact.offset)
        )

    def _in_transaction(self, fact: Fact) -> None:
        part = self._open
        if part is None:
            marker = self._marker
            after = marker.offset if marker is not None and marker.epoch == fact.epoch else NONE
            if self._first_by_broker < 0:
                # For a broker the transaction continues when a later epoch writes without a marker in between.
                self._first_by_broker = fact.offset
            self._open = Part(
                fact.producer_id,
                fact.epoch,
                fact.topic,
                fact.partition,
                fact.offset,
                fact.last_offset,
                fact.batches,
                fact.records,
                fact.size_bytes,
                NONE,
                NONE,
                TransactionOutcome.OPEN,
                TransactionOutcome.OPEN,
                NONE,
                fact.first_timestamp,
                fact.last_timestamp,
                NONE,
                LATE if fact.epoch < self._highest_epoch else "open",
                "",
                after,
            )
            return
        self._open = part._replace(
            last_offset=fact.last_offset,
            batches=part.batches + fact.batches,
            records=part.records + fact.records,
            size_bytes=part.size_bytes + fact.size_bytes,
            written=max(part.written, fact.last_timestamp),
        )

    def _end_transaction(self, marker: Fact) -> Iterator[HistoryRow]:
        yield from self._check_marker(marker)
        yield from self._check_index_entry(marker)
        part, self._open = self._open, None
        repeated = (
            part is None
            and self._marker is not None
            and (self._marker.epoch, self._marker.outcome) == (marker.epoch, marker.outcome)
        )
        outcome = TransactionOutcome(marker.outcome)
        decision, contradiction = self._decisions.match(marker, repeated=repeated)
        if self._primary:
            if contradiction:
                yield from self._report("torn", marker, contradiction)
            if not repeated:
                began = part or self._empty_part(marker)
                yield began._replace(
                    marker_offset=marker.offset,
                    marker_epoch=marker.epoch,
                    outcome=outcome,
                    decided=TransactionOutcome.OPEN if decision is None else TransactionOutcome(decision.outcome),
                    coordinator_epoch=marker.coordinator_epoch,
                    ended=marker.last_timestamp,
                    fate="torn" if contradiction else FATES[outcome],
                    transactional_id=self._decisions.transactional_id if decision is None else decision.name,
                )
            if part is not None and outcome == TransactionOutcome.ABORTED and part.records:
                yield Fact(
                    part.topic,
                    part.partition,
                    NONE,
                    part.producer_id,
                    part.first_offset,
                    Rank.ABORTED_DATA,
                    part.last_offset,
                )
            if outcome == TransactionOutcome.COMMITTED:
                yield from self._commits_of(marker)
        self._commits.clear()
        # A new epoch begins its sequences at 0.
        if marker.epoch != self._epoch:
            self._last_sequence = self._last_offset = -1
        self._epoch, self._highest_epoch = marker.epoch, max(marker.epoch, self._highest_epoch)
        self._coordinator_epoch = (
            marker.coordinator_epoch if outcome != TransactionOutcome.UNKNOWN else self._coordinator_epoch
        )
        self._last_timestamp, self._seen_until = marker.last_timestamp, marker.offset
        self._marker, self._first_by_broker = marker, -1

    def _empty_part(self, marker: Fact) -> Part:
        # A part without data: the partition was added to the transaction, then nothing was written.
        return Part(
            marker.producer_id, marker.epoch, marker.topic, marker.partition, NONE, NONE, 0, 0, 0, NONE, NONE,
            TransactionOutcome.OPEN, TransactionOutcome.OPEN, NONE, NONE, NONE, NONE, "", "", NONE,
        )  # fmt: skip

    def _check_marker(self, marker: Fact) -> Iterator[HistoryRow]:
        if marker.outcome == TransactionOutcome.UNKNOWN:
            return
        if marker.epoch < self._highest_epoch:
            text = f"a marker of epoch {marker.epoch} after epoch {self._highest_epoch}"
            yield from self._report("stray-marker", marker, text)
        elif 0 <= marker.coordinator_epoch < self._coordinator_epoch:
            text = (
                f"a marker by the coordinator of epoch {marker.coordinator_epoch}, "
                f"after one of epoch {self._coordinator_epoch}"
            )
            yield from self._report("stray-marker", marker, text)

    def _commits_of(self, marker: Fact) -> Iterator[Fact]:
        if marker.topic == CONSUMER_OFFSETS:
            for commit in self._commits:
                partition = partition_of_directory(commit.place)
                if partition is not None:
                    yield committed_offset(
                        partition, commit.name, commit.partition, commit.offset, commit.value, commit.last_timestamp
                    )

    def _check_index_entry(self, marker: Fact) -> Iterator[HistoryRow]:
        entry, part = self._entry, self._open
        if entry is not None and entry.offset == marker.offset:
            self._entry = None
            if marker.outcome == TransactionOutcome.COMMITTED:
                yield from self._report("transaction-index", entry, "the index says aborted, the marker says committed")
            elif (
                part is not None and self._first_by_broker != entry.value and not self._may_begin_at(entry.value, part)
            ):
                text = f"the index says it began at offset {entry.value}, the log says {self._first_by_broker}"
                yield from self._report("transaction-index", entry, text)
            elif entry.last_offset > marker.offset + 1:
                text = f"the index says the last stable offset was {entry.last_offset}, after the transaction's marker"
                yield from self._report("transaction-index", entry, text)
        elif marker.outcome == TransactionOutcome.ABORTED and part is not None and part.records:
            segment = self._partition.unindexed_segment(marker.replica, marker.offset)
            if segment is not None:  # one finding per file, not one per producer
                base, _, path = segment
                text = (
                    "the segment has aborted transactions but no transaction index: stop the broker and remove the "
                    "segment's .index; it builds both again"
                )
                yield Finding("transaction-index", marker.topic, marker.partition, base, path=path, text=text)
                return
            text = f"the transaction aborted here, begun at offset {part.first_offset}, is not in the index"
            yield from self._report("transaction-index", marker, text)

    def _may_begin_at(self, offset: int, part: Part) -> bool:
        """True if the transaction may begin before the first retained offset, or in compacted data."""
        return (
            self._partition.cleaned
            or offset < self._partition.start
            or (self._partition.holes != [] and offset < part.first_offset)
        )

    def _stray_entry(self, offset: int, rank: int) -> Iterator[HistoryRow]:
        entry = self._entry
        if entry is None or (entry.offset, Rank.MARKER) >= (offset, rank):
            return
        self._entry = None
        damaged = self._partition.damaged_between(entry.replica, entry.offset, entry.offset)
        damaged |= self._context.is_moving and entry.offset >= self._partition.ends.get(entry.replica, 0)
        if not self._partition.cleaned and entry.offset >= self._partition.start and not damaged:
            yield from self._report(
                "transaction-index", entry, "the index has an aborted transaction, the log no marker"
            )

    def _check_snapshot(self, fact: Fact) -> Iterator[HistoryRow]:
        place = self._partition
        if place.damaged_between(fact.replica, place.start, fact.offset) or fact.offset > place.ends.get(
            fact.replica, 0
        ):
            return  # unreadable, or newer than the copy of the log
        first = -1 if self._open is None else self._first_by_broker
        if self._epoch < 0:
            if fact.value >= max(place.start, 0) and not place.cleaned:
                yield from self._report(
                    "producer-snapshot", fact, f"an open transaction from {fact.value}, the log has none"
                )
            return
        # Retention and compaction take the first records of a transaction away, compaction also all of them.
        began_before = 0 <= fact.value < first and (fact.value < place.start or place.cleaned)
        was_compacted = place.cleaned and fact.value >= 0 > first
        if fact.value != first and not (began_before or was_compacted):
            yield from self._report(
                "producer-snapshot", fact, f"open transaction {_at(fact.value)}, the log says {_at(first)}"
            )
        if place.cleaned:
            return
        if fact.epoch != self._epoch:
            yield from self._report("producer-snapshot", fact, f"epoch {fact.epoch}, the log says {self._epoch}")
        elif self._last_offset >= 0 and fact.last_offset != self._last_offset:
            text = f"last offset {fact.last_offset}, the log says {self._last_offset}"
            yield from self._report("producer-snapshot", fact, text)
        elif self._last_offset >= 0 and fact.last_sequence != self._last_sequence:
            text = f"last sequence {fact.last_sequence}, the log says {self._last_sequence}"
            yield from self._report("producer-snapshot", fact, text)
        elif self._marker is not None and fact.coordinator_epoch < self._coordinator_epoch:
            text = f"coordinator epoch {fact.coordinator_epoch}, the log says {self._coordinator_epoch}"
            yield from self._report("producer-snapshot", fact, text)

    def _finish(self, last: Fact) -> Iterator[HistoryRow]:
        yield from self._stray_entry(1 << 62, Rank.MARKER)
        part = self._open
        if not self._primary:
            return
        damaged = self._partition.damaged_between(self._partition.primary, self._seen_until, self._partition.end)
        if part is not None:
            late = damaged or part.fate == LATE
            decision = None if late else self._decisions.unmarked_decision(part, self._context)
            part = part._replace(
                fate="unknown" if damaged else "torn" if decision is not None else part.fate,
                decided=TransactionOutcome.OPEN if decision is None else TransactionOutcome(decision.outcome),
                transactional_id=self._decisions.transactional_id,
            )
            yield part
            if decision is not None:
                yield self._without_marker(part, decision)
        elif not damaged and self._partition.is_whole:
            since = self._partition.first_timestamp
            for decision in self._decisions.decisions_without_marker(since, self._context):
                text = f"no marker: the coordinator decided to {describe_decision(decision)}, and the log ends without"
                findings = self._report("torn", decision._replace(offset=self._partition.end), text)
                for finding in findings:
                    yield finding._replace(transactional_id=decision.name)
        for kind, number in self._counts.items():
            if number > _SHOWN:
                text = f"and {number - _SHOWN} more of this producer here"
                yield Finding(kind, last.topic, last.partition, producer_id=last.producer_id, text=text)

    def _without_marker(self, part: Part, decision: Fact) -> Finding:
        text = f"no marker: the coordinator decided to {describe_decision(decision)}"
        # KAFKA-20716: the coordinator was done, so the marker had been written; a new leader does not have it.
        if election := self._partition.election_after(part.last_offset):
            lost = f"{text}, and {election}: an unclean election has lost it, and whatever else was there"
            return _finding_for("lost-marker", part, lost)
        return _finding_for("torn", part, text)

    def _report(self, kind: str, fact: Fact, text: str) -> Iterator[Finding]:
        number = self._counts[kind] = self._counts.get(kind, 0) + 1
        if number <= _SHOWN:
            yield Finding(
                kind,
                fact.topic,
                fact.partition,
                fact.offset,
                fact.last_offset if fact.rank == Rank.DATA else NONE,
                self._decisions.transactional_id,
                fact.producer_id,
                fact.epoch if fact.rank != Rank.INDEX_ENTRY else self._epoch,
                fact.last_timestamp,
                "" if self._primary else f"replica {fact.replica}",
                text,
            )


def _finding_for(kind: str, part: Part, text: str) -> Finding:
    return Finding(
        kind,
        part.topic,
        part.partition,
        part.first_offset if part.first_offset >= 0 else part.marker_offset,
        part.last_offset,
        part.transactional_id,
        part.producer_id,
        part.epoch,
        part.started if part.started >= 0 else part.ended,
        text=text,
    )


finding_for = _finding_for


def describe_decision(decision: Fact) -> str:
    verb = "commit" if decision.outcome == TransactionOutcome.COMMITTED else "abort"
    return f"{verb} {decision.name!r} at epoch {decision.epoch}"


def _at(offset: int) -> str:
    return "none" if offset < 0 else f"from offset {offset}"
