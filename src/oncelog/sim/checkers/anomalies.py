"""Finds in a history what a log with transactions must never do. Knows nothing of brokers.

Each rule yields one line for every instance; :func:`check` runs them all. The first ten are the anomalies in use for
Kafka-like logs. A transaction or write whose end is unknown may be visible or not, but all of it alike. No two rules
speak of the same fault: what is committed and not there is lost (H1, H2), not torn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Final

from oncelog.base.ids import TopicPartition
from oncelog.sim.checkers import offsets
from oncelog.sim.checkers.history import GroupPartition, History, RecordedOutcome, Write
from oncelog.sim.checkers.history_index import HistoryIndex, Incarnation


def check(history: History) -> dict[str, list[str]]:
    """Anomaly (number and name) → its instances; empty when there is none."""
    index = HistoryIndex(history)
    found = {name: list(look(index)) for name, look in ANOMALIES.items()}
    return {name: instances for name, instances in found.items() if instances}


def lost_writes(index: HistoryIndex) -> Iterator[str]:
    """Committed or acknowledged, not there at the end, though a later record of its partition is."""
    for name, write in index.missing:
        if write.offset is None or write.offset <= index.last_offset(write.partition):
            yield f"{write.value} of {name} is not in {write.partition}"


def unseen_after_drain(index: HistoryIndex) -> Iterator[str]:
    """Committed or acknowledged at an offset that the drain has not reached."""
    for name, write in index.missing:
        if write.offset is not None and write.offset > index.last_offset(write.partition):
            yield f"{write.value} of {name} at {write.partition}@{write.offset}, the drain ends before"


def duplicates(index: HistoryIndex) -> Iterator[str]:
    """One record at several offsets, unless its producer is not idempotent; an offset twice in a drain."""
    repeatable = index.repeatable
    first: dict[str, tuple[Incarnation, int]] = {}
    said: set[tuple[str, Incarnation, int]] = set()
    for place, offset, value, _ in index.seen:
        if place is None:
            continue
        before = first.setdefault(value, (place, offset))
        if before == (place, offset) or value in repeatable or (value, place, offset) in said:
            continue
        if before[0][1] == place[1]:
            said.add((value, place, offset))
            yield f"{value} at {before[0][0]}@{before[1]} and {place[0]}@{offset}"
    for partition, records in index.history.drained.items():
        if len({record[0] for record in records}) < len(records):
            counts = Counter(record.offset for record in records)
            yield from (
                f"{partition}@{offset} {count} times in one drain" for offset, count in counts.items() if count > 1
            )


def inconsistent_offsets(index: HistoryIndex) -> Iterator[str]:
    """Several records at one offset, or a record elsewhere than where it was sent and acknowledged."""
    values: dict[tuple[Incarnation, int], str] = {}
    written, repeatable = index.written, index.repeatable
    for place, offset, value, who in index.seen:
        if place is None:
            continue
        other = values.setdefault((place, offset), value)
        if other != value:
            yield f"{place[0]}@{offset} is {other} and, for {who}, {value}"
        known = written.get(value)
        if known is None:
            continue
        write = known[0]
        elsewhere = write.offset is not None and write.offset != offset and value not in repeatable
        if elsewhere or write.partition != place[0]:
            yield f"{value} acknowledged at {write.partition}@{write.offset}, {who} saw it at {place[0]}@{offset}"


def aborted_reads(index: HistoryIndex) -> Iterator[str]:
    """A record of an aborted transaction was passed on at read_committed, or one that was refused at all."""
    aborted = {
        value: name
        for value, (write, name, transaction) in index.written.items()
        if RecordedOutcome.ABORTED in (write.outcome, transaction and transaction.outcome)
    }
    refused = {value for value in aborted if index.written[value][0].outcome is RecordedOutcome.ABORTED}
    for partition, records in index.history.drained.items():
        for offset, value, _ in records:
            if value in aborted:
                yield f"{value} of {aborted[value]} at {partition}@{offset}, by the drain"
    for poll in index.history.polls:
        for offset, value, _ in poll.records:
            if value in aborted and (poll.read_committed or value in refused):
                yield f"{value} of {aborted[value]} at {poll.partition}@{offset}, by {poll.consumer}"


def torn_transactions(index: HistoryIndex) -> Iterator[str]:
    """Transactions with an unknown end of which part is visible at the end and part is not."""
    visible = index.visible
    for transaction in index.history.transactions:
        if transaction.outcome is RecordedOutcome.UNKNOWN:
            shown = sum(write[1] in visible for write in transaction.writes)
            if 0 < shown < len(transaction.writes):
                absent = [w for w in transaction.writes if w.value not in visible and not index.excused(w)]
                if absent:
                    yield f"{transaction.name}: {len(absent)} of {len(transaction.writes)} records are not there"


def uncommitted_reads(index: HistoryIndex) -> Iterator[str]:
    """Read at read_committed, by whomever, also by its own writer, before its commit was asked for."""
    begun = {
        write.value: transaction
        for transaction in index.history.transactions
        if transaction.outcome is not RecordedOutcome.ABORTED
        for write in transaction.writes
    }
    for poll in index.history.polls:
        for record in poll.records if poll.read_committed else ():
            transaction = begun.get(record[1])
            if transaction is not None and (transaction.ending_at is None or poll.at < transaction.ending_at):
                own = "its own writer" if poll.consumer == transaction.process else poll.consumer
                yield f"{record.value} of {transaction.name} at {poll.partition}@{record.offset}, by {own}"


def skipped_records(index: HistoryIndex) -> Iterator[str]:
    """A consumer passed over a record that is there at the end."""
    there = {partition: [record[0] for record in records] for partition, records in index.history.drained.items()}
    for consumer, partition, read in index.reads:
        if partition.topic in index.deleted:
            continue
        got, first, last = set(read), read[0], read[-1]
        missed = [offset for offset in there.get(partition, ()) if first < offset < last and offset not in got]
        if missed:
            yield f"{consumer} passed over {partition}@{missed[0]} and {len(missed) - 1} more"


def non_monotonic_reads(index: HistoryIndex) -> Iterator[str]:
    """A consumer went back without being told to."""
    for consumer, partition, read in index.reads:
        for before, after in pairwise(read):
            if after <= before:
                yield f"{consumer} went from {partition}@{before} to {after}"
    for partition, records in index.history.drained.items():
        if any(after[0] < before[0] for before, after in pairwise(records)):
            yield f"the drain of {partition} is out of order"


def invented_records(index: HistoryIndex) -> Iterator[str]:
    written = index.written
    for place, offset, value, who in index.seen:
        if value not in written:
            yield f"{value} at {place[0] if place else '?'}@{offset}, by {who}"


def reordered_writes(index: HistoryIndex) -> Iterator[str]:
    """A transactional or idempotent producer's records of a partition are not in the order they were sent."""
    at = index.drained_at
    for name, writes in index.ordered_writes():
        last: dict[TopicPartition, tuple[int, str]] = {}
        for write in writes:
            offset = at.get(write.value)
            if offset is None or write.partition.topic in index.deleted:
                continue
            before = last.get(write.partition)
            if before is not None and offset < before[0]:
                yield f"{name} wrote {before[1]} before {write.value}, {write.partition} has it after"
            last[write.partition] = offset, write.value


def resurrected_records(index: HistoryIndex) -> Iterator[str]:
    """A record acknowledged before its topic was deleted is in the topic that was created in its place."""
    if not index.deleted:
        return
    for value in index.visible & index.written.keys():
        write, name, _ = index.written[value]
        answered = write.answered_at
        for topic, asked_at, over in index.history.deletions if answered is not None else ():
            if topic == write.partition.topic and over is not None and (answered or 0) < asked_at:
                yield f"{value} of {name}, acknowledged before {topic} was deleted, is there again"
                break


def two_outcomes(index: HistoryIndex) -> Iterator[str]:
    """Both a commit and an abort of one transaction were agreed to."""
    for transaction in index.history.transactions:
        agreed = {commit for commit, _, agreed in transaction.completions if agreed}
        if len(agreed) > 1:
            yield f"{transaction.name} was committed and aborted"


def prepared_transactions_lost(index: HistoryIndex) -> Iterator[str]:
    """A prepared transaction could not be completed though nobody else can have decided it."""
    for transaction in index.history.transactions:
        if transaction.prepared and transaction.completions:
            agreed = [completion.agreed for completion in transaction.completions]
            if all(answer is False for answer in agreed):
                yield f"{transaction.name} was prepared, its completion was refused {len(agreed)} times"


def log_starts_moved(index: HistoryIndex) -> Iterator[str]:
    """A log starts where neither DeleteRecords nor retention can have put it, or shows what is below."""
    asked: dict[TopicPartition, int] = {}
    agreed: dict[TopicPartition, int] = {}
    for partition, before, acknowledged in index.history.trims:
        asked[partition] = max(before, asked.get(partition, 0))
        if acknowledged:
            agreed[partition] = max(before, agreed.get(partition, 0))
    starts = index.history.log_starts
    for partition in sorted(starts.keys() | agreed.keys()):
        start = starts.get(partition, 0)
        if partition.topic in index.deleted:
            continue
        if start < agreed.get(partition, 0):
            yield f"{partition} starts at {start}, records before {agreed[partition]} were deleted"
        if start > asked.get(partition, 0) and partition.topic not in index.history.expiring:
            yield f"{partition} starts at {start}, nothing from {asked.get(partition, 0)} on was deleted"
        below = [record.offset for record in index.drained_records(partition) if record.offset < start]
        if below:
            yield f"{partition} starts at {start}, the drain has {below[0]}"
    yield from _expired_too_early(index)


def _expired_too_early(index: HistoryIndex) -> Iterator[str]:
    """A log began above a record that retention had to keep."""
    history = index.history
    written: dict[TopicPartition, list[Write]] = {}
    for write, _, _ in index.written.values():
        if write.offset is not None and write.partition.topic in history.retained_for:
            written.setdefault(write.partition, []).append(write)
    for partition, start, at in history.starts_seen:
        sent_before = at - history.retained_for.get(partition.topic, 0)
        for write in written.get(partition, ()):
            if write.offset is not None and write.offset < start and write.sent_at > sent_before:
                yield f"{partition} starts at {start} though {write.value} at {write.offset} was not old enough"
                break


def commits_without_a_part(index: HistoryIndex) -> Iterator[str]:
    """A transaction was committed by a client that had been told that a record of it is refused."""
    for transaction in index.history.transactions:
        if transaction.outcome is RecordedOutcome.COMMITTED:
            refused = [write.value for write in transaction.writes if write.outcome is RecordedOutcome.ABORTED]
            if refused:
                yield f"{transaction.name} was committed, {refused[0]} and {len(refused) - 1} more had been refused"


Rule = Callable[[HistoryIndex], Iterator[str]]


def copied_not_exactly_once(index: HistoryIndex) -> Iterator[str]:
    """H19: a record copied twice, not at all though the group is past it, or though it is not in the source."""
    history = index.history
    for source, target, group in history.copies:
        copied = Counter(
            record.value.partition("|")[2]
            for partition, records in history.drained.items()
            if partition.topic == target
            for record in records
        )
        yield from (f"{value} {count} times in {target}" for value, count in copied.items() if count > 1)
        there: set[str] = set()
        for partition, records in history.drained.items():
            if partition.topic != source:
                continue
            reads_next = (history.committed_offsets or {}).get(GroupPartition(group, partition), 0)
            there.update(record.value for record in records)
            for record in records:
                if record.offset < reads_next and record.value not in copied:
                    where = f"{partition}@{record.offset}"
                    yield f"{record.value} at {where} is not in {target}, {group} reads {reads_next}"
        yield from (f"{value} is in {target} and not in {source}" for value in copied if value not in there)


ANOMALIES: Final[Mapping[str, Rule]] = {
    "H1 lost write": lost_writes,
    "H2 unseen after drain": unseen_after_drain,
    "H3 duplicate": duplicates,
    "H4 inconsistent offset": inconsistent_offsets,
    "H5 aborted read": aborted_reads,
    "H6 torn transaction": torn_transactions,
    "H7 uncommitted read": uncommitted_reads,
    "H8 skipped record": skipped_records,
    "H9 non-monotonic poll": non_monotonic_reads,
    "H10 offsets beside the data": offsets.beside_the_data,
    "H11 invented record": invented_records,
    "H12 reordered writes": reordered_writes,
    "H13 resurrected record": resurrected_records,
    "H14 two outcomes": two_outcomes,
    "H15 prepared transaction lost": prepared_transactions_lost,
    "H16 log start": log_starts_moved,
    "H17 lost offset commit": offsets.lost_commits,
    "H18 unread before commit": offsets.unread_before_commit,
    "H19 not copied exactly once": copied_not_exactly_once,
    "H20 committed without a part": commits_without_a_part,
    "H21 committed offset went back": offsets.went_back,
}
