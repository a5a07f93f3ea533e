"""A directory of Parquet files as a table that jobs write: each step's files are published one by one.

No file is published before it is checked against its footer, and quarantined rows only with the range they are missing
from.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pyarrow as pa

from oncelog.base.ids import TopicPartition
from oncelog.spark.jobs.load_plan import Piece, StepKind
from oncelog.spark.jobs.load_report import LoadRequest, Progress
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.table.directory import QuarantineSender, Role, RowsFile, Table, reject_non_directory
from oncelog.spark.table.parquet_files import (
    MergeSource,
    check_staged,
    files_in,
    footer_stats,
    merge,
    merge_replaced,
    write_empty,
    write_empty_range,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from oncelog.spark.jobs.spark_reader import SparkReader


class FileWriter(Protocol):
    parallelism: int

    def write(self, pieces: Sequence[Piece], directory: Path, frame: DataFrame | None = None) -> dict[int, Path]:
        """Write each piece's rows, or ``frame``'s (a streaming query's batch), to a new file in ``directory``. Returns
        index of piece → file, without empty ones."""


@runtime_checkable
class ShapedWriter(FileWriter, Protocol):
    # The columns of its files, without those that directories represent.
    schema: pa.Schema
    partition_by: str | None
    new_columns: list[str]

    def write_bad(self, pieces: Sequence[Piece], directory: Path) -> dict[int, Path]:
        """Write the bad rows of the last ``write``'s pieces, with a result as of ``write``."""

    def record_columns(self, table: Table) -> None:
        """Record the columns in the table, before any rows have them."""


class ParquetTable:
    whole_files = True

    def __init__(
        self, request: LoadRequest, options: SourceOptions, send_quarantined: QuarantineSender | None = None
    ) -> None:
        reject_non_directory(request.to)
        self._request, self._options, self._send_quarantined = request, options, send_quarantined
        self._topic = request.quarantine_topic
        self._table = Table(Path(request.to))
        self._progress: Progress

    @property
    def name(self) -> str:
        return str(self._table.path)

    @property
    def spark_log(self) -> Path:
        return self._table.hidden / "spark.log"

    @property
    def quarantine(self) -> str:
        return self._topic or str(self._table.quarantine)

    @contextmanager
    def lock(self, role: Role = "append") -> Iterator[None]:
        with Table.open(self._table.path, self._send_quarantined, role) as self._table:
            yield

    def describe(self) -> dict[str, Any]:
        return self._table.describe()

    def set_description(self, description: Mapping[str, Any]) -> None:
        self._table.set_description(description)

    def drop_unused_description(self) -> None:
        self._table.drop_unused_description()

    def files(self, partitions: Sequence[TopicPartition] = ()) -> dict[tuple[str, int], list[RowsFile]]:
        return self._table.files()

    def needs_columns(self) -> bool:
        # A plain table has fixed columns.
        return not self._request.shape.is_plain and not self.files()

    def writer(self, reader: SparkReader) -> FileWriter:
        from oncelog.spark.session.sessions import check_shared
        from oncelog.spark.targets.parquet_writer import ShapedFileWriter, SparkFileWriter, known_columns

        check_shared(reader.job_session, self._table.hidden)
        if self._request.shape.is_plain:
            return SparkFileWriter(reader)
        # The ends of the logs are known: no record before them has a newer schema.
        return ShapedFileWriter(reader, self._request.shape.current(), known_columns(self.describe()))

    def new_columns(self, writer: FileWriter) -> list[str]:
        return writer.new_columns if isinstance(writer, ShapedWriter) else []

    def prepare(self, writer: FileWriter) -> None:
        if isinstance(writer, ShapedWriter):
            writer.record_columns(self._table)

    def begin(self, progress: Progress) -> None:
        self._progress = progress
        self._table.partitioned = self._request.shape.partition_by is not None

    def run_step(
        self, kind: StepKind, pieces: Sequence[Piece], writer: FileWriter, frame: DataFrame | None = None
    ) -> None:
        progress, report = self._progress, self._progress.report
        directory = self._table.staging(report.steps)
        progress.emit("writing")
        files = writer.write(pieces, directory, frame)
        shaped = writer if isinstance(writer, ShapedWriter) else None
        bad = {} if shaped is None else shaped.write_bad(pieces, directory.with_name(f"{directory.name}-bad"))
        progress.emit("written")
        rows = [self._prepare(piece, index, files, directory, shaped) for index, piece in enumerate(pieces)]
        bad_rows = [self._prepare_bad(piece, index, bad, directory) for index, piece in enumerate(pieces)]
        for index, piece in enumerate(pieces):
            progress.emit("publishing")
            report.bytes += sum(file.stat().st_size for file in files_in(files[index]))
            self._publish(files[index], bad.get(index), piece.file, bad_rows[index])
            report.files += 1
            progress.count_rows(piece, rows[index], bad_rows[index])
            progress.count_done(piece)
            progress.emit("published")
        report.steps += 1
        progress.emit("committed")

    def record_start_offsets(self, begins: Mapping[TopicPartition, int], writer: FileWriter) -> None:
        # Publish empty files, whose names tell where their partitions begin.
        for partition, offset in begins.items():
            self._publish_empty(RowsFile.of(partition, offset, offset), writer)
            self._progress.report.steps += 1

    def publish_empty(self, partition: TopicPartition, offset: int, writer: FileWriter | None) -> None:
        if not self.files():
            self._publish_empty(RowsFile.of(partition, offset, offset), writer)

    def compact(self, target_bytes: int) -> int:
        from oncelog.spark.table.compact import compact_open

        return compact_open(self._table, target_bytes).files_before

    def _publish_empty(self, file: RowsFile, writer: FileWriter | None) -> None:
        directory = self._table.staging(self._progress.report.steps)
        directory.mkdir()
        self._write_empty(directory / "empty.parquet", writer if isinstance(writer, ShapedWriter) else None)
        self._table.publish(directory / "empty.parquet", file)
        self._progress.report.files += 1

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
        """Set ``files[index]`` to the file to publish for the piece. Returns the number of rows read."""
        if index not in files:
            files[index] = directory / f"empty-{index}.parquet"
            self._write_empty(files[index], writer)
        facts = check_staged(files[index], piece.offset_range)
        if piece.keeps_rows:
            merged = directory / f"merged-{index}.parquet"
            merge_replaced(self._table.path_of(piece.file), files[index], piece.offset_range.start, merged)
            files[index] = merged
        return facts.rows

    def _prepare_bad(self, piece: Piece, index: int, bad: dict[int, Path], directory: Path) -> int:
        """Set ``bad[index]`` to the piece's bad rows, with those of the kept part. Returns the number read."""
        rows = check_staged(bad[index], piece.offset_range).rows if index in bad else 0
        before = self._table.bad_path_of(piece.file)
        if self._topic is None and piece.keeps_rows and before.exists():
            merged = directory / f"bad-{index}.parquet"
            merge(
                [MergeSource(before, piece.offset_range.start), *([MergeSource(bad[index])] if index in bad else [])],
                merged,
            )
            bad[index] = merged
            if not footer_stats(merged).rows:
                del bad[index]
        return rows

    def _write_empty(self, path: Path, writer: ShapedWriter | None) -> None:
        if writer is None:
            write_empty(path, include_headers=self._options.include_headers)
        else:
            write_empty_range(path, writer.schema, partitioned_by=writer.partition_by)
