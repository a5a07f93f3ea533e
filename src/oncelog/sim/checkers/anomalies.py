"""Finds in a history what a log with transactions must never do. Knows nothing of brokers.

The anomalies are those in use for Kafka-like logs. Each function yields one line for every instance; :func:`check` runs
them all. A transaction whose end is unknown may be visible or not, but all of it alike.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from oncelog.sim.checkers.history import History, Outcome, Poll, Transaction


def check(history: History) -> dict[str, list[str]]:
    """Anomaly → its instances; empty when there is none."""
    found = {name: list(look(history)) for name, look in ANOMALIES.items()}
    return {name: instances for name, instances in found.items() if instances}


def lost_writes(history: History) -> Iterator[str]:
    """Committed, not there at the end, though a later record of its partition is."""
    for transaction, partition, value, offset in _missing(history):
        last = _last_offset(history, partition)
        if offset is None or offset <= last:
            yield f"{value} of {transaction.name} is not in partition {partition}"


def unseen_after_drain(history: History) -> Iterator[str]:
    """Committed at an offset that the drain has not reached."""
    for transaction, partition, value, offset in _missing(history):
        if offset is not None and offset > _last_offset(history, partition):
            yield f"{value} of {transaction.name} at {partition}@{offset}, the drain ends before"


def duplicates(history: History) -> Iterator[str]:
    """One record at several offsets."""
    places: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for partition, offset, value, _ in _sightings(history):
        places[value].add((partition, offset))
    for value, found in places.items():
        if len(found) > 1:
            yield f"{value} at {sorted(found)}"
    for partition, records in history.drained.items():
        for offset, count in Counter(offset for offset, _ in records).items():
            if count > 1:
                yield f"{partition}@{offset} {count} times in one drain"


def inconsistent_offsets(history: History) -> Iterator[str]:
    """Several records at one offset, or a record elsewhere than where it was acknowledged."""
    values: dict[tuple[int, int], set[str]] = defaultdict(set)
    acknowledged = {
        write.value: (write.partition, write.offset)
        for transaction in history.transactions
        for write in transaction.writes
        if write.offset is not None
    }
    for partition, offset, value, _ in _sightings(history):
        values[partition, offset].add(value)
        if acknowledged.get(value, (partition, offset)) != (partition, offset):
            yield f"{value} acknowledged at {acknowledged[value]}, seen at {(partition, offset)}"
    for place, found in values.items():
        if len(found) > 1:
            yield f"{place} has {sorted(found)}"


def aborted_reads(history: History) -> Iterator[str]:
    """A record of an aborted transaction was passed on."""
    aborted = {w.value: t.name for t in history.transactions if t.outcome is Outcome.ABORTED for w in t.writes}
    for partition, offset, value, who in _sightings(history):
        if value in aborted:
            yield f"{value} of {aborted[value]} at {partition}@{offset}, by {who}"


def torn_transactions(history: History) -> Iterator[str]:
    """Part of a transaction is visible at the end, and part of it is not."""
    visible = _visible_values(history)
    for transaction in history.transactions:
        shown = sum(write.value in visible for write in transaction.writes)
        if 0 < shown < len(transaction.writes):
            yield f"{transaction.name}: {shown} of {len(transaction.writes)} records"


def uncommitted_reads(history: History) -> Iterator[str]:
    """Read, by whomever, also by its own writer, before its commit was asked for."""
    written = {write.value: transaction for transaction in history.transactions for write in transaction.writes}
    for poll in history.polls:
        for offset, value in poll.records:
            transaction = written.get(value)
            if transaction is not None and (transaction.ending_at is None or poll.at < transaction.ending_at):
                own = "its own writer" if poll.consumer == transaction.process else poll.consumer
                yield f"{value} of {transaction.name} at {poll.partition}@{offset}, by {own}"


def skipped_records(history: History) -> Iterator[str]:
    """A consumer passed over a record that is there at the end."""
    at = {partition: [offset for offset, _ in records] for partition, records in history.drained.items()}
    for consumer, partition, offsets in _reads(history):
        got = set(offsets)
        missed = [o for o in at.get(partition, ()) if offsets[0] < o < offsets[-1] and o not in got]
        if missed:
            yield f"{consumer} passed over {partition}@{missed[0]} and {len(missed) - 1} more"


def non_monotonic_reads(history: History) -> Iterator[str]:
    """A consumer went back without being told to."""
    for consumer, partition, offsets in _reads(history):
        for before, after in itertools.pairwise(offsets):
            if after <= before:
                yield f"{consumer} went from {partition}@{before} to {after}"
    for partition, records in history.drained.items():
        if any(after[0] < before[0] for before, after in itertools.pairwise(records)):
            yield f"the drain of {partition} is out of order"


def offsets_beside_the_data(history: History) -> Iterator[str]:
    """The group's offset is not that of the last visible transaction."""
    if history.committed_offsets is None:
        return
    visible = _visible_values(history)
    expected: dict[int, int] = {}
    for transaction in history.transactions:
        shown = transaction.outcome is Outcome.COMMITTED or any(w.value in visible for w in transaction.writes)
        for partition, offset in transaction.offsets.items() if shown else ():
            expected[partition] = max(offset, expected.get(partition, 0))
    for partition in sorted(expected.keys() | history.committed_offsets.keys()):
        found = history.committed_offsets.get(partition, 0)
        if found != expected.get(partition, 0):
            yield f"source partition {partition}: {found} committed, the data says {expected.get(partition, 0)}"


ANOMALIES: Final[Mapping[str, Callable[[History], Iterator[str]]]] = {
    "lost write": lost_writes,
    "unseen after drain": unseen_after_drain,
    "duplicate": duplicates,
    "inconsistent offset": inconsistent_offsets,
    "aborted read": aborted_reads,
    "torn transaction": torn_transactions,
    "uncommitted read": uncommitted_reads,
    "skipped poll": skipped_records,
    "non-monotonic poll": non_monotonic_reads,
    "offsets beside the data": offsets_beside_the_data,
}


def _visible_values(history: History) -> set[str]:
    return {value for records in history.drained.values() for _, value in records}


def _missing(history: History) -> Iterator[tuple[Transaction, int, str, int | None]]:
    visible = _visible_values(history)
    for transaction in history.transactions:
        if transaction.outcome is Outcome.COMMITTED:
            for partition, value, offset in transaction.writes:
                if value not in visible:
                    yield transaction, partition, value, offset


def _last_offset(history: History, partition: int) -> int:
    return max((offset for offset, _ in history.drained.get(partition, ())), default=-1)


def _sightings(history: History) -> Iterator[tuple[int, int, str, str]]:
    """(partition, offset, value, who)."""
    for poll in history.polls:
        for offset, value in poll.records:
            yield poll.partition, offset, value, poll.consumer
    for partition, records in history.drained.items():
        for offset, value in records:
            yield partition, offset, value, "the drain"


def _reads(history: History) -> Iterator[tuple[str, int, list[int]]]:
    """(consumer, partition, offsets in the order they came), anew after each seek."""
    runs: dict[tuple[str, int], list[int]] = {}
    finished: list[tuple[str, int, list[int]]] = []
    for poll in sorted(history.polls, key=_time):
        key = poll.consumer, poll.partition
        if poll.sought and key in runs:
            finished.append((*key, runs.pop(key)))
        runs.setdefault(key, []).extend(offset for offset, _ in poll.records)
    finished += [(*key, offsets) for key, offsets in runs.items()]
    return (entry for entry in finished if entry[2])


def _time(poll: Poll) -> int:
    return poll.at
