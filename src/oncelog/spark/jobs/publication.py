"""A load under way: each step written, checked, and published range by range, in the order the plan gives.

The rule: nothing is published that was not checked against its footer, and rows that went into the quarantine are
published with the range they are missing from, or not at all.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import pyarrow as pa

from oncelog.spark.jobs.load_plan import Piece
from oncelog.spark.jobs.load_report import Event, LoadReport, PartitionReport
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.table.directory import QuarantineSender, RowsFile, Table
from oncelog.spark.table.parquet_files import (
    Kept,
    check_staged,
    files_in,
    footer_stats,
    merge,
    merge_kept,
    write_empty,
    write_empty_range,
)


class Writer(Protocol):
    """The writer of ranges into files: Spark, or a test's."""

    parallelism: int

    def write(self, pieces: Sequence[Piece], directory: Path) -> dict[int, Path]:
        """Write each piece's rows into one new file in ``directory``; index of the piece → file, empty ones absent."""


@runtime_checkable
class ShapedWriter(Writer, Protocol):
    """A writer that makes other columns of records, and finds some of them bad."""

    schema: pa.Schema
    """The columns of what it writes, without those that directories stand for."""
    partition_by: str | None
    new_columns: list[str]

    def write_bad(self, pieces: Sequence[Piece], directory: Path) -> dict[int, Path]:
        """Write the bad rows of the last ``write``'s pieces, with the same result as ``write``."""


class Publication:
    """One load's steps, and its report so far."""

    def __init__(
        self,
        table: Table,
        options: SourceOptions,
        report: LoadReport,
        *,
        offsets_total: int = 0,
        on_event: Callable[[Event], None] = lambda event: None,
        quarantine_topic: str | None = None,
        send_quarantined: QuarantineSender | None = None,
    ) -> None:
        self._table, self._options, self._on_event = table, options, on_event
        self._offsets_done, self._offsets_total = 0, offsets_total
        self._topic, self._send_quarantined = quarantine_topic, send_quarantined
        self.report = report
        self._by_partition = {(one.topic, one.partition): one for one in report.partitions}

    def report_progress(
        self, kind: Literal["planned", "writing", "written", "publishing", "published", "committed"]
    ) -> None:
        """Report progress to the caller: each event has happened, or is about to."""
        self._on_event(Event(kind, self.report.steps, self._offsets_done, self._offsets_total, self.report.rows))

    def run_step(self, pieces: Sequence[Piece], writer: Writer) -> None:
        """Run one step: write all pieces, check them all, then publish them one by one in their order."""
        directory = self._table.staging(self.report.steps)
        self.report_progress("writing")
        files = writer.write(pieces, directory)
        shaped = writer if isinstance(writer, ShapedWriter) else None
        bad = {} if shaped is None else shaped.write_bad(pieces, directory.with_name(f"{directory.name}-bad"))
        self.report_progress("written")
        rows = [self._prepare(piece, index, files, directory, shaped) for index, piece in enumerate(pieces)]
        bad_rows = [self._prepare_bad(piece, index, bad, directory) for index, piece in enumerate(pieces)]
        for index, piece in enumerate(pieces):
            self.report_progress("publishing")
            self.report.bytes += sum(file.stat().st_size for file in files_in(files[index]))
            self._publish(files[index], bad.get(index), piece.file, bad_rows[index])
            self._count(piece, rows[index], bad_rows[index])
            self.report_progress("published")
        self.report.steps += 1
        self.report_progress("committed")

    def add_partition(self, partition: PartitionReport) -> None:
        """Add a partition to the report, unless it is there."""
        if self._by_partition.setdefault((partition.topic, partition.partition), partition) is partition:
            self.report.partitions.append(partition)

    def publish_empty(self, file: RowsFile, writer: Writer | None = None) -> None:
        """Publish a file without rows: a table of empty topics has columns, and can be read."""
        directory = self._table.staging(self.report.steps)
        directory.mkdir()
        self._write_empty(directory / "empty.parquet", writer if isinstance(writer, ShapedWriter) else None)
        self._table.publish(directory / "empty.parquet", file)
        self.report.files += 1

    def _count(self, piece: Piece, rows: int, bad_rows: int) -> None:
        self.report.files += 1
        self.report.rows += rows
        self.report.quarantined += bad_rows
        of_partition = self._by_partition[piece.wanted.topic, piece.wanted.partition]
        of_partition.rows += rows
        of_partition.quarantined += bad_rows
        of_partition.end = max(of_partition.end, piece.wanted.end)
        self._offsets_done += piece.wanted.size

    def _publish(self, staged: Path, bad: Path | None, file: RowsFile, bad_rows: int) -> None:
        if self._topic is not None and bad is not None:
            if bad_rows:
                rows = str(bad.relative_to(self._table.path))
                extra = {"topic": self._topic, "rows": rows, "id": uuid.uuid4().hex}
                self._table.publish_with_bad_rows(staged, None, file, self._send_quarantined, **extra)
            else:
                self._table.publish(staged, file)
        elif bad is not None or self._table.bad_path_of(file).exists():
            self._table.publish_with_bad_rows(staged, bad, file)
        else:
            self._table.publish(staged, file)

    def _prepare(
        self, piece: Piece, index: int, files: dict[int, Path], directory: Path, writer: ShapedWriter | None
    ) -> int:
        """Let ``files[index]`` be the file to publish for the piece; the number of rows read for it."""
        if index not in files:
            files[index] = directory / f"empty-{index}.parquet"
            self._write_empty(files[index], writer)
        facts = check_staged(files[index], piece.wanted)
        if piece.keeps_rows:
            merged = directory / f"merged-{index}.parquet"
            merge_kept(self._table.path_of(piece.file), files[index], piece.wanted.start, merged)
            files[index] = merged
        return facts.rows

    def _prepare_bad(self, piece: Piece, index: int, bad: dict[int, Path], directory: Path) -> int:
        """Let ``bad[index]`` be the piece's bad rows, with those of the part that is kept; the number of rows read for
        it."""
        rows = check_staged(bad[index], piece.wanted).rows if index in bad else 0
        before = self._table.bad_path_of(piece.file)
        if self._topic is None and piece.keeps_rows and before.exists():
            merged = directory / f"bad-{index}.parquet"
            merge([Kept(before, piece.wanted.start), *([Kept(bad[index])] if index in bad else [])], merged)
            bad[index] = merged
            if not footer_stats(merged).rows:
                del bad[index]
        return rows

    def _write_empty(self, path: Path, writer: ShapedWriter | None) -> None:
        if writer is None:
            write_empty(path, include_headers=self._options.include_headers)
        else:
            write_empty_range(path, writer.schema, partitioned_by=writer.partition_by)
