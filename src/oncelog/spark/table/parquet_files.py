"""Checks, creates and merges the Parquet files of a table, in the driver.

The driver does not trust a task's report: it reads the footer that Spark's writer filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.records.columns.decode import column_schema
from oncelog.spark.source.offset_ranges import OffsetRange
from oncelog.spark.table.directory import Table, TableError

# The day of rows without a time, as Hive and Spark name it.
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_ROWS_A_GROUP: Final = 250_000


class FooterStats(NamedTuple):
    """Number of rows, and the smallest and largest offset (−1 for an empty file)."""

    rows: int
    first_offset: int
    last_offset: int


def table_schema(*, include_headers: bool) -> pa.Schema:
    schema = column_schema(include_headers=include_headers)
    index = schema.get_field_index("timestamp")
    return schema.set(index, pa.field("timestamp", pa.timestamp("us", "UTC")))


def write_empty(path: Path, *, include_headers: bool) -> None:
    """Write a file without rows, for a range that has only markers or removed records."""
    pq.write_table(table_schema(include_headers=include_headers).empty_table(), path)


def write_empty_range(path: Path, schema: pa.Schema, *, partitioned_by: str | None) -> None:
    """Write a range without rows; in a partitioned table, a directory with one empty file under no day."""
    if partitioned_by is None:
        pq.write_table(schema.empty_table(), path)
        return
    directory = path.joinpath(*(f"{level}={NO_VALUE}" for level in levels(partitioned_by)))
    directory.mkdir(parents=True)
    pq.write_table(schema.empty_table(), directory / "rows.parquet")


def levels(partitioned_by: str) -> tuple[str, ...]:
    """The directories of a partitioned table, outermost first."""
    return ("day", "hour") if partitioned_by == "hour" else ("day",)


def files_in(path: Path) -> list[Path]:
    """The Parquet files of a range: the file itself, or those in its directory."""
    return sorted(path.rglob("*.parquet")) if path.is_dir() else [path]


def footer_stats(path: Path) -> FooterStats:
    rows, smallest, largest = 0, [], []
    for file in files_in(path):
        metadata = pq.read_metadata(file)
        rows += metadata.num_rows
        for group in range(metadata.num_row_groups):
            if metadata.row_group(group).num_rows:
                statistics = column_statistics(metadata, group, "offset", file)
                smallest.append(int(statistics.min))
                largest.append(int(statistics.max))
    return FooterStats(rows, min(smallest, default=-1), max(largest, default=-1))


def partition_of(path: Path) -> TopicPartition:
    """The partition of a range's rows, from the first footer that has rows. Raises TableError."""
    for file in files_in(path):
        metadata = pq.read_metadata(file)
        for group in range(metadata.num_row_groups):
            if metadata.row_group(group).num_rows:
                topic = str(column_statistics(metadata, group, "topic", file).min)
                return TopicPartition(TopicName(topic), int(column_statistics(metadata, group, "partition", file).min))
    raise TableError(f"{path.name} has no rows, so its footers name no partition")


def check_staged(path: Path, expected: OffsetRange) -> FooterStats:
    """Read the footers of a file that a task wrote. Raises TableError unless it holds its range and nothing else."""
    facts = footer_stats(path)
    within = facts.rows == 0 or expected.start <= facts.first_offset <= facts.last_offset < expected.end
    # Offsets may be missing (markers, compaction), rows may not be more.
    if not within or (expected.max_rows is not None and facts.rows > expected.max_rows):
        raise TableError(
            f"{path.name} should hold offsets {expected.start} to {expected.end - 1} of {expected.topic_partition} "
            f"but holds {facts.rows} rows from {facts.first_offset} to {facts.last_offset}"
        )
    for file in files_in(path):
        metadata = pq.read_metadata(file)
        for group in range(metadata.num_row_groups):
            if metadata.row_group(group).num_rows:
                _check_column(metadata, group, "topic", expected.topic, file)
                _check_column(metadata, group, "partition", expected.partition, file)
    return facts


def rows_within(batch: Any, partition: TopicPartition, start: int, end: int) -> Any:
    """A mask of the rows of a partition from ``start`` (inclusive) to ``end`` (exclusive)."""
    (topic, number), offset = partition, batch.column("offset")
    own = pc.and_(
        pc.equal(batch.column("topic"), pa.scalar(topic)),
        pc.equal(batch.column("partition"), pa.scalar(number, pa.int32())),
    )
    return pc.and_(own, pc.and_(pc.greater_equal(offset, pa.scalar(start)), pc.less(offset, pa.scalar(end))))


def write_common_columns(table: Table, schema: pa.Schema) -> None:
    final, staged = table.path / "_common_metadata", table.hidden / "_common_metadata.new"
    if final.exists() and pq.read_schema(final).equals(schema):
        return
    pq.write_metadata(schema, str(staged))
    staged.replace(final)


class MergeSource(NamedTuple):
    """A file or directory of rows; only offsets below ``below`` are taken (None: all)."""

    path: Path
    below: int | None = None


def merge_replaced(old: Path, staged: Path, below: int, merged: Path) -> None:
    merge([MergeSource(old, below), MergeSource(staged)], merged)


def merge(sources: Sequence[MergeSource], merged: Path) -> int:
    """Write all rows of files (or of directories, day by day) to one, in order. Returns the number of rows.

    The columns are those of all files, the last file's first; a missing one becomes null.
    """
    if not any(source.path.is_dir() for source in sources):
        return _merge_files(sources, merged)
    days: dict[Path, list[MergeSource]] = {}
    for path, below in sources:
        for file in files_in(path):
            days.setdefault(file.parent.relative_to(path), []).append(MergeSource(file, below))
    rows = 0
    for day, files in sorted(days.items()):
        (merged / day).mkdir(parents=True)
        rows += _merge_files(files, merged / day / "rows.parquet")
    return rows


def _merge_files(sources: Sequence[MergeSource], merged: Path) -> int:
    schemas = [pq.read_schema(source.path) for source in reversed(sources)]
    # The last file's columns first: it is the newest.
    schema = pa.unify_schemas(schemas, promote_options="permissive").with_metadata(schemas[0].metadata)
    rows, pending, pending_rows = 0, list[pa.RecordBatch](), 0
    with pq.ParquetWriter(merged, schema, compression="snappy") as writer:
        for path, below in sources:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches():
                    kept = batch if below is None else batch.filter(pc.less(batch.column("offset"), pa.scalar(below)))
                    pending.append(_conform(kept, schema))
                    pending_rows += kept.num_rows
                    if pending_rows >= _ROWS_A_GROUP:
                        writer.write_table(pa.Table.from_batches(pending, schema))
                        rows, pending, pending_rows = rows + pending_rows, [], 0
        writer.write_table(pa.Table.from_batches(pending, schema))
    return rows + pending_rows


def _conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    has = set(batch.schema.names)
    columns = [
        batch.column(field.name).cast(field.type) if field.name in has else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _check_column(metadata: pq.FileMetaData, group: int, column: str, expected: object, path: Path) -> None:
    statistics = column_statistics(metadata, group, column, path)
    if not statistics.min == statistics.max == expected:
        raise TableError(f"{path.name} should hold {column} {expected} but holds {statistics.min} to {statistics.max}")


def column_statistics(metadata: pq.FileMetaData, group: int, column: str, path: Path | str) -> Any:
    """A column's statistics in a row group. Raises TableError without minimum and maximum."""
    row_group = metadata.row_group(group)
    for index in range(row_group.num_columns):
        chunk = row_group.column(index)
        if chunk.path_in_schema == column:
            if chunk.statistics is None or not chunk.statistics.has_min_max:
                break
            return chunk.statistics
    raise TableError(
        f"the footer of {Path(path).name} has no minimum and maximum of column {column!r}, so its rows cannot be "
        "checked"
    )
