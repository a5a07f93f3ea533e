"""The Parquet files of a table, seen by the driver: checked before they are published, empty ones, merged ones.

The rule: a task's word is not enough. The rows of a file are read from its footer, which Spark's own writer filled
while it wrote them.
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

NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""The day of rows without a time, as Hive and Spark name it."""
_ROWS_A_GROUP: Final = 250_000


class FooterStats(NamedTuple):
    """Rows of a file and the smallest and largest offset among them (−1 when it is empty)."""

    rows: int
    first_offset: int
    last_offset: int


def table_schema(*, include_headers: bool) -> pa.Schema:
    """The columns of a table's files."""
    schema = column_schema(include_headers=include_headers)
    index = schema.get_field_index("timestamp")
    return schema.set(index, pa.field("timestamp", pa.timestamp("us", "UTC")))


def write_empty(path: Path, *, include_headers: bool) -> None:
    """A file without rows: the range was read and had none (markers, aborted or compacted records)."""
    pq.write_table(table_schema(include_headers=include_headers).empty_table(), path)


def write_empty_range(path: Path, schema: pa.Schema, *, partitioned_by: str | None) -> None:
    """A range without rows, of any columns; in a partitioned table a directory with one empty file under no day."""
    if partitioned_by is None:
        pq.write_table(schema.empty_table(), path)
        return
    directory = path.joinpath(*(f"{one}={NO_VALUE}" for one in levels(partitioned_by)))
    directory.mkdir(parents=True)
    pq.write_table(schema.empty_table(), directory / "rows.parquet")


def levels(partitioned_by: str) -> tuple[str, ...]:
    """The directories of a partitioned table, outermost first."""
    return ("day", "hour") if partitioned_by == "hour" else ("day",)


def files_in(path: Path) -> list[Path]:
    """The Parquet files of a range: itself, or those in the directory."""
    return sorted(path.rglob("*.parquet")) if path.is_dir() else [path]


def footer_stats(path: Path) -> FooterStats:
    """Rows and offsets of a range, by its files' footers."""
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
    """The partition of a range's rows: the smallest topic and partition that its first footer names."""
    for file in files_in(path):
        metadata = pq.read_metadata(file)
        for group in range(metadata.num_row_groups):
            if metadata.row_group(group).num_rows:
                topic = str(column_statistics(metadata, group, "topic", file).min)
                return TopicPartition(TopicName(topic), int(column_statistics(metadata, group, "partition", file).min))
    raise TableError(f"{path.name} has no rows, so its footers name no partition")


def check_staged(path: Path, wanted: OffsetRange) -> FooterStats:
    """The facts of a file that a task wrote for a range. Raises TableError unless it holds that range and only that."""
    facts = footer_stats(path)
    within = facts.rows == 0 or wanted.start <= facts.first_offset <= facts.last_offset < wanted.end
    if not within or (wanted.most_rows is not None and facts.rows > wanted.most_rows):
        raise TableError(
            f"{path.name} was to hold offsets {wanted.start} to {wanted.end - 1} of {wanted.topic_partition} "
            f"and holds {facts.rows} rows from {facts.first_offset} to {facts.last_offset}"
        )
    for file in files_in(path):
        metadata = pq.read_metadata(file)
        for group in range(metadata.num_row_groups):
            if metadata.row_group(group).num_rows:
                _check_column(metadata, group, "topic", wanted.topic, file)
                _check_column(metadata, group, "partition", wanted.partition, file)
    return facts


def rows_within(batch: Any, partition: TopicPartition, start: int, end: int) -> Any:
    """True for the rows of a partition from offset ``start`` (inclusive) to ``end`` (exclusive)."""
    (topic, number), offset = partition, batch.column("offset")
    own = pc.and_(
        pc.equal(batch.column("topic"), pa.scalar(topic)),
        pc.equal(batch.column("partition"), pa.scalar(number, pa.int32())),
    )
    return pc.and_(own, pc.and_(pc.greater_equal(offset, pa.scalar(start)), pc.less(offset, pa.scalar(end))))


def write_common_columns(table: Table, schema: pa.Schema) -> None:
    """The columns of the table for Spark, which takes them from here before it looks at any one file."""
    final, staged = table.path / "_common_metadata", table.hidden / "_common_metadata.new"
    if final.exists() and pq.read_schema(final).equals(schema):
        return
    pq.write_metadata(schema, str(staged))
    staged.replace(final)


class Kept(NamedTuple):
    """A file or directory of rows, and the offset below which they are taken (None: all)."""

    path: Path
    below: int | None = None


def merge_kept(old: Path, staged: Path, below: int, merged: Path) -> None:
    """``merged``: the rows of ``old`` with offsets below ``below``, then those of ``staged``."""
    merge([Kept(old, below), Kept(staged)], merged)


def merge(sources: Sequence[Kept], merged: Path) -> int:
    """Write all rows of files (or of directories, day by day) into one, in order; the number of rows.

    Columns are those of all together, the last ones' first; where a file lacks one its rows have null.
    """
    if not any(source.path.is_dir() for source in sources):
        return _merge_files(sources, merged)
    days: dict[Path, list[Kept]] = {}
    for path, below in sources:
        for file in files_in(path):
            days.setdefault(file.parent.relative_to(path), []).append(Kept(file, below))
    rows = 0
    for day, files in sorted(days.items()):
        (merged / day).mkdir(parents=True)
        rows += _merge_files(files, merged / day / "rows.parquet")
    return rows


def _merge_files(sources: Sequence[Kept], merged: Path) -> int:
    schemas = [pq.read_schema(source.path) for source in reversed(sources)]
    schema = pa.unify_schemas(schemas, promote_options="permissive").with_metadata(schemas[0].metadata)
    rows, waiting, waiting_rows = 0, list[pa.RecordBatch](), 0
    with pq.ParquetWriter(merged, schema, compression="snappy") as writer:
        for path, below in sources:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches():
                    kept = batch if below is None else batch.filter(pc.less(batch.column("offset"), pa.scalar(below)))
                    waiting.append(_conform(kept, schema))
                    waiting_rows += kept.num_rows
                    if waiting_rows >= _ROWS_A_GROUP:
                        writer.write_table(pa.Table.from_batches(waiting, schema))
                        rows, waiting, waiting_rows = rows + waiting_rows, [], 0
        writer.write_table(pa.Table.from_batches(waiting, schema))
    return rows + waiting_rows


def _conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """``batch`` with exactly the columns of ``schema``."""
    has = set(batch.schema.names)
    columns = [
        batch.column(one.name).cast(one.type) if one.name in has else pa.nulls(batch.num_rows, one.type)
        for one in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _check_column(metadata: pq.FileMetaData, group: int, column: str, wanted: object, path: Path) -> None:
    statistics = column_statistics(metadata, group, column, path)
    if not statistics.min == statistics.max == wanted:
        raise TableError(f"{path.name} was to hold {column} {wanted} and holds {statistics.min} to {statistics.max}")


def column_statistics(metadata: pq.FileMetaData, group: int, column: str, path: Path | str) -> Any:
    """The statistics of a column in a row group. Raises TableError if the footer has no minimum and maximum."""
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
