"""Writes ranges to a table directory's Parquet files with one Spark job, through Spark's own Parquet writer.

A task writes one file, whose number is the task's and so the range's index. Spark has read a streaming query's batch
already: there the footers tell the range.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from oncelog.spark.jobs.load_plan import Piece
from oncelog.spark.jobs.shape import Shape, arrow_columns, bad_rows, good_rows, merged_columns, schema_columns, shaped
from oncelog.spark.jobs.spark_reader import SparkReader, one_line_error
from oncelog.spark.json_values.decoding import BAD
from oncelog.spark.table.directory import Table, TableError
from oncelog.spark.table.parquet_files import (
    MergeSource,
    files_in,
    footer_stats,
    levels,
    merge,
    partition_of,
    write_common_columns,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_ANY_TASKS: Final = 1 << 31
_PART: Final = re.compile(r"part-(\d+)-.*\.parquet")


class SparkFileWriter:
    def __init__(self, reader: SparkReader) -> None:
        self._reader = reader
        self.parallelism = reader.parallelism

    def write(self, pieces: Sequence[Piece], directory: Path, frame: DataFrame | None = None) -> dict[int, Path]:
        """Run the job. Raises LoadFailed, TableError."""
        rows = self._reader.read(pieces) if frame is None else frame
        files = self._write_rows(rows, directory, len(pieces) if frame is None else _ANY_TASKS)
        return files if frame is None else by_range(files.values(), directory, pieces)

    def _write_rows(self, frame: DataFrame, directory: Path, tasks: int) -> dict[int, Path]:
        """Write a frame of at most ``tasks`` tasks. Returns task number → file."""
        # Counting the rows costs time, and proves something only if executors may be elsewhere.
        if self._reader.job_session.is_this_machine():
            self._write_frame(frame, directory)
            return by_task(directory, tasks)
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        seen: Observation = Observation()
        self._write_frame(frame.observe(seen, f.count(f.lit(1)).alias("rows")), directory)
        files = by_task(directory, tasks)
        check_rows(files, int(seen.get["rows"]), directory)
        return files

    def _write_frame(self, frame: DataFrame, directory: Path, partition_by: str | None = None) -> None:
        """Write one file per task with rows, or per task and day in a partitioned table. Raises LoadFailed."""
        writer = frame.write.partitionBy(*levels(partition_by)) if partition_by else frame.write
        try:
            with self._reader.job_session.settings():
                writer.parquet(str(directory.absolute()))
        except Exception as error:
            raise one_line_error(error) from error


class ShapedFileWriter(SparkFileWriter):
    """Writes the columns and directories of a shape, and bad rows separately.

    The job that writes the good rows counts the bad ones; if there are any, the ranges are read again for them. The two
    counts must agree.
    """

    def __init__(self, reader: SparkReader, shape: Shape, existing: StructType | None) -> None:
        super().__init__(reader)
        self._shape = shape
        self.partition_by = shape.partition_by
        with reader.job_session.settings():
            self._columns = merged_columns(existing, schema_columns(reader.read([]), shape))
            reader.decoding = shape.decoding(self._columns)
            partition_columns = levels(shape.partition_by) if shape.partition_by else ()
            self.schema = arrow_columns(good_rows(self._shaped(reader.read([])), shape), partition_columns)
        self.new_columns = (
            []
            if existing is None
            else [name for name in (self._columns or existing).names if name not in existing.names]
        )
        # Number of bad rows in the last ``write``.
        self._bad_count = 0

    def _write_rows(self, frame: DataFrame, directory: Path, tasks: int) -> dict[int, Path]:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        seen: Observation = Observation()
        is_bad = f.col(BAD).isNotNull()
        counted = self._shaped(frame).observe(seen, f.count_if(is_bad).alias("bad"), f.count_if(~is_bad).alias("good"))
        self._write_frame(good_rows(counted, self._shape), directory, self.partition_by)
        files = by_task(directory, tasks)
        if not self._reader.job_session.is_this_machine():
            check_rows(files, int(seen.get["good"]), directory)
        self._bad_count = int(seen.get["bad"])
        return files

    def write_bad(self, pieces: Sequence[Piece], directory: Path) -> dict[int, Path]:
        # Most steps have no bad rows and need no second read.
        if not self._bad_count:
            return {}
        with self._reader.job_session.settings():
            frame = bad_rows(self._shaped(self._reader.read(pieces)))
        self._write_frame(frame, directory)
        files = by_task(directory, len(pieces))
        check_bad_count(files, self._bad_count)
        return files

    def record_columns(self, table: Table) -> None:
        if self._columns is None:
            return
        columns = json.loads(self._columns.json())
        described = table.describe()
        if described.get("columns") != columns:
            table.set_description({**described, "columns": columns})
        write_common_columns(table, self.schema)

    def _shaped(self, frame: DataFrame) -> DataFrame:
        return shaped(frame, self._shape, self._columns)


def known_columns(description: Mapping[str, Any]) -> StructType | None:
    from pyspark.sql.types import StructType

    columns = description.get("columns")
    return None if columns is None else StructType.fromJson(columns)


def by_task(directory: Path, tasks: int) -> dict[int, Path]:
    """Task number → its file, or a directory with a subdirectory for each day."""
    files: dict[int, Path] = {}
    for path in files_in(directory):
        match = _PART.fullmatch(path.name)
        if match is None:
            continue
        number, day = int(match[1]), path.parent.relative_to(directory)
        if number >= tasks:
            raise TableError(f"Spark wrote {path.name}, but the job has {tasks} tasks: run it again")
        if day == Path():
            if number in files:
                raise TableError(f"Spark wrote {path.name} and another file in one task, where one is expected")
            files[number] = path
            continue
        files[number] = directory / f"task-{number}"
        day_directory = files[number] / day
        day_directory.mkdir(parents=True)
        path.rename(day_directory / "rows.parquet")
    return files


def check_bad_count(files: Mapping[int, Path], counted: int) -> None:
    rows = _rows_in(files)
    if rows != counted:
        raise TableError(
            f"{counted} rows were bad in the first read and {rows} in the second: the log changed meanwhile (retention "
            "or compaction). Nothing of this step was published; run it again"
        )


def check_rows(files: Mapping[int, Path], counted: int, directory: Path) -> None:
    """Raise TableError unless this machine sees all rows that Spark's tasks wrote."""
    rows = _rows_in(files)
    if rows != counted:
        raise TableError(
            f"Spark's tasks wrote {counted} rows, but {directory} has {rows} of them on this machine: every executor "
            "needs the table's directory at the same path as this process. Nothing of this step was published"
        )


def _rows_in(files: Mapping[int, Path]) -> int:
    return sum(footer_stats(file).rows for path in files.values() for file in files_in(path))


def by_range(files: Iterable[Path], directory: Path, pieces: Sequence[Piece]) -> dict[int, Path]:
    """Index of the piece → the file with its rows, merged from those of several tasks."""
    by_piece: dict[int, list[tuple[int, Path]]] = {}
    for path in files:
        facts = footer_stats(path)
        if facts.rows:
            partition = partition_of(path)
            index = next((i for i, piece in enumerate(pieces) if piece.offset_range.topic_partition == partition), None)
            if index is None:
                raise TableError(
                    f"Spark wrote rows of {partition}, which this batch does not read: start the stream again"
                )
            by_piece.setdefault(index, []).append((facts.first_offset, path))
    result: dict[int, Path] = {}
    for index, parts_read in by_piece.items():
        parts_read.sort()
        result[index] = parts_read[0][1]
        if len(parts_read) > 1:
            result[index] = directory / f"range-{index}.parquet"
            merge([MergeSource(path) for _, path in parts_read], result[index])
    return result
