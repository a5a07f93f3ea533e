"""Runs the audit in this process without Spark, for one small directory and for tests. All rows stay in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from oncelog.base.ids import group_by_key
from oncelog.spark.audit.audit_plan import SegmentTask
from oncelog.spark.audit.model import Finding, Part, rows_of, schema_of
from oncelog.spark.audit.pipeline import ProgressCallback, Tally, gravest_first, ignore_progress, typed_batches
from oncelog.spark.audit.segments.segment_facts import TypedBatch

Batches = dict[type[Any], list[pa.RecordBatch]]
READING = "reading segments"
PLAIN_FATES = ("committed", "aborted")


class LocalEngine:
    """Implements ``pipeline.Engine``; a handle maps a row type to its batches."""

    def __init__(self, progress: ProgressCallback = ignore_progress) -> None:
        self._report_progress = progress

    def map_segments(
        self, tasks: Sequence[SegmentTask], read: Callable[[SegmentTask], Iterator[TypedBatch]]
    ) -> Batches:
        return group_by_key(typed for task in self._counted(tasks) for typed in read(task))

    def _counted(self, tasks: Sequence[SegmentTask]) -> Iterator[SegmentTask]:
        for number, task in enumerate(tasks):
            self._report_progress(READING, number, len(tasks))
            yield task
        self._report_progress(READING, len(tasks), len(tasks))

    def map_sorted(
        self,
        sources: Sequence[Batches],
        row_type: type[Any],
        order: Sequence[str],
        group: int,
        keep: tuple[str, Sequence[int]] | None,
        step: Callable[[Iterator[Any]], Iterator[Any]],
    ) -> Batches:
        # One stream keeps all groups together.
        del group
        table = pa.Table.from_batches(_batches(sources, row_type), schema_of(row_type))
        if keep is not None:
            table = table.filter(pc.is_in(table[keep[0]], pa.array([int(value) for value in keep[1]])))
        ordered = table.sort_by([(name, "ascending") for name in order])
        return group_by_key(typed_batches(step(rows_of(ordered.to_batches(max_chunksize=16_384), row_type))))

    def rows(self, sources: Sequence[Batches], row_type: type[Any]) -> Iterator[Any]:
        return rows_of(_batches(sources, row_type), row_type)

    def findings(self, sources: Sequence[Batches], limit: int) -> tuple[dict[str, int], list[Finding]]:
        distinct: dict[tuple[Any, ...], Finding] = {}
        for finding in self.rows(sources, Finding):
            key = (finding.kind, finding.topic, finding.partition, finding.offset, finding.producer_id, finding.epoch)
            previous = distinct.get(key)
            if previous is None or (finding.path, finding.text) < (previous.path, previous.text):
                distinct[key] = finding
        kinds = Counter(finding.kind for finding in distinct.values())
        return dict(kinds), gravest_first(distinct.values())[:limit]

    def totals(self, parts: Batches, buckets: tuple[int, int], limit: int) -> tuple[list[Tally], list[Part]]:
        start, width = buckets
        numbers: dict[tuple[int, str], list[int]] = {}
        unusual: list[Part] = []
        for part in self.rows([parts], Part):
            when = part.ended if part.ended >= 0 else part.written
            tally = numbers.setdefault(((when - start) // width, part.fate), [0, 0, 0])
            tally[0] += 1
            tally[1] += part.records
            tally[2] += part.size_bytes
            if part.fate not in PLAIN_FATES and len(unusual) < limit:
                unusual.append(part)
        return [Tally(bucket, fate, *counts) for (bucket, fate), counts in sorted(numbers.items())], unusual

    def write(self, sources: Sequence[Batches], row_type: type[Any], directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_batches(_batches(sources, row_type), schema_of(row_type))
        pq.write_table(table, directory / "part-0.parquet", compression="zstd")


def _batches(sources: Sequence[Batches], row_type: type[Any]) -> list[pa.RecordBatch]:
    return [batch for source in sources for batch in source.get(row_type, ())]
