"""Compares a table's rows with its topics: each row has a committed record, each such record has a row. Pure.

Records before the log's start are gone, and rows there are not judged. Compaction removes records whose rows remain, so
in a log with holes a row without a record is no finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from oncelog.base.ids import TopicPartition
from oncelog.base.text import counted
from oncelog.spark.table_audit.model import Finding
from oncelog.spark.table_audit.offset_runs import EMPTY, Runs
from oncelog.spark.table_audit.row_offsets import TableRows, ranges_text
from oncelog.spark.table_audit.topic_log import LogOffsets

_NO_END: Final = 1 << 62


class Claim(NamedTuple):
    """The offsets of a partition that the table claims to have; ``end`` is exclusive, ``source`` says by what."""

    begin: int
    end: int
    source: str


def comparison_findings(
    rows: TableRows, partition: TopicPartition, log: LogOffsets, claim: Claim | None, elsewhere: Runs
) -> Iterator[Finding]:
    """``elsewhere``: offsets of rows in the quarantine."""
    offsets = rows.offsets.get(partition, EMPTY)
    # A log that was not read to its end says nothing about later rows.
    judged = offsets.within(Runs.of((log.start, max(log.start, log.end - 1) if log.caveat else _NO_END)))
    sides = (
        ("aborted-rows", judged.within(log.aborted), "belong to aborted transactions"),
        ("open-rows", judged.within(log.open), "belong to transactions that are still open"),
        ("unknown-rows", judged.within(Runs.of((log.end, _NO_END))), f"are beyond the log's end, {log.end}"),
        ("unknown-rows", judged.within(log.markers), "are where the log has transaction markers"),
    )
    for kind, runs, text in sides:
        if runs.size:
            yield _finding(kind, rows, partition, runs, f"{counted(runs.size, 'row')} of {partition} {text}")
    if not log.has_holes:
        covered = Runs.of(*((log.start, log.end - 1),) if log.end > log.start else ())
        batches = (log.committed, log.aborted, log.open, log.markers)
        unknown = judged.within(covered)
        for batch_offsets in batches:
            unknown = unknown.without(batch_offsets)
        if unknown.size:
            text = f"{counted(unknown.size, 'row')} of {partition} are where the log has no record"
            yield _finding("unknown-rows", rows, partition, unknown, text)
    if claim is not None and claim.end > claim.begin and not log.has_holes:
        missing = log.committed.within(Runs.of((claim.begin, claim.end - 1))).without(offsets).without(elsewhere)
        if missing.size:
            yield Finding(
                "missing-rows",
                f"{counted(missing.size, 'committed record')} of {partition} have no row, at offsets "
                f"{ranges_text(missing)}, within {claim.begin} to before {claim.end} ({claim.source}). Rows that were "
                "deleted, filtered or quarantined in a topic look the same",
                None,
                None,
                str(partition.topic),
                partition.partition,
                int(missing.starts[0]),
                int(missing.ends[-1]),
                missing.size,
            )


def _finding(kind: str, rows: TableRows, partition: TopicPartition, runs: Runs, text: str) -> Finding:
    first = int(runs.starts[0])
    files = rows.files_with(partition, first)
    location = f"; offset {first} is in {', '.join(files)}" if files else ""
    return Finding(
        kind,
        f"{text}: offsets {ranges_text(runs)}{location}",
        None,
        None,
        str(partition.topic),
        partition.partition,
        first,
        int(runs.ends[-1]),
        runs.size,
        files,
    )
