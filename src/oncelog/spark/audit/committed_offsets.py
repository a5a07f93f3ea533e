"""Checks committed offsets against the log: none may be past its end or inside an aborted batch.

A read-committed consumer skips aborted batches whole. A group with an offset inside one has processed records that were
then aborted.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Final

from oncelog.base.ids import CONSUMER_OFFSETS, TopicName, TopicPartition
from oncelog.records.batch import HEADER_SIZE, CorruptBatch, read_header
from oncelog.spark.audit.audit_context import AuditContext
from oncelog.spark.audit.audit_plan import PartitionPlace
from oncelog.spark.audit.directories import position_before
from oncelog.spark.audit.model import NONE, Fact, Finding, Rank
from oncelog.storage.file_names import LOG, parse_segment_file

# Headers read for one offset when there is no offset index.
_MAX_STEPS: Final = 1_000_000
# (partition, offset) → first and last offset of the batch that holds it.
Lookup = Callable[[TopicPartition, int], tuple[int, int] | None]


def committed_offsets(facts: Iterable[Fact], context: AuditContext, lookup: Lookup) -> Iterator[Finding]:
    """Yield the findings about ``facts``, in FACT_ORDER: commits for a partition precede its aborted data."""
    for (topic, index), group in groupby(facts, key=attrgetter("topic", "partition")):
        partition = TopicPartition(TopicName(topic), index)
        place = context.partitions.get(partition)
        if place is None:
            continue
        latest: dict[str, Fact] = {}
        offsets: list[tuple[int, str]] | None = None
        for fact in group:
            if fact.rank == Rank.COMMITTED_OFFSET:
                previous = latest.get(fact.name)
                # Only the last commit of a group counts.
                if previous is None or fact.last_offset >= previous.last_offset:
                    latest[fact.name] = fact
            elif fact.rank == Rank.ABORTED_DATA:
                if offsets is None:
                    offsets = sorted((commit.value, name) for name, commit in latest.items() if commit.value > 0)
                yield from _inside(fact, offsets, latest, partition, lookup)
        # With unreadable parts the log's end is not certain.
        if not place.holes:
            for commit in latest.values():
                if commit.value > place.end and context.is_settled(commit.last_timestamp):
                    text = f"group {commit.name!r} has committed {commit.value}, the log ends at {place.end}"
                    yield _finding("offsets-beyond-log", commit, text)


def _inside(
    aborted: Fact, offsets: list[tuple[int, str]], latest: dict[str, Fact], partition: TopicPartition, lookup: Lookup
) -> Iterator[Finding]:
    # Groups at the first aborted offset have read nothing of it; the highest character sorts after all of their names.
    start = bisect_right(offsets, (aborted.offset, "\U0010ffff"))
    for offset, group in offsets[start:]:
        if offset > aborted.last_offset:
            return
        # An offset within aborted data is rare, so one look-up in the log for each is cheap.
        bounds = lookup(partition, offset)
        if (
            bounds is not None
            and bounds[0] < offset <= bounds[1]
            and aborted.offset <= bounds[0] <= aborted.last_offset
        ):
            text = (
                f"group {group!r} has committed {offset}, inside the batch {bounds[0]} to {bounds[1]} "
                f"between offsets {aborted.offset} and {aborted.last_offset}, aborted by producer {aborted.producer_id}"
            )
            yield _finding("aborted-offsets", latest[group], text)


def _finding(kind: str, commit: Fact, text: str) -> Finding:
    commit_place = f"{CONSUMER_OFFSETS}-{commit.place}, offset {commit.last_offset}"
    return Finding(
        kind,
        commit.topic,
        commit.partition,
        commit.value,
        NONE,
        time=commit.last_timestamp,
        path=commit_place,
        text=text,
    )


def batch_at(
    places: Mapping[TopicPartition, PartitionPlace], partition: TopicPartition, offset: int
) -> tuple[int, int] | None:
    """First and last offset of the batch that contains an offset, read from the segment file."""
    place = places.get(partition)
    try:
        return None if place is None else _find(place.directory, offset)
    except OSError:
        return None


def _find(directory: str, offset: int) -> tuple[int, int] | None:
    parsed = (parse_segment_file(name) for name in os.listdir(directory))
    bases = [parts[0] for parts in parsed if parts is not None and parts[1:] == (LOG, "") and parts[0] <= offset]
    if not bases:
        return None
    path = f"{directory}/{max(bases):020d}{LOG}"
    with open(path, "rb", buffering=0) as file:
        position = position_before(path, max(bases), offset, file.seek(0, 2))
        for _ in range(_MAX_STEPS):
            try:
                header = read_header(os.pread(file.fileno(), HEADER_SIZE, position))
            except CorruptBatch:
                return None
            if header.last_offset >= offset:
                return header.base_offset, header.last_offset
            position += header.size_bytes
    return None
