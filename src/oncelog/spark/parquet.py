"""The Parquet files of a table, seen by the driver: checked before they are published, empty ones, merged ones.

The rule: nothing is believed because a task said so. What a file holds is read from its footer, which Spark's own
writer filled while it wrote the rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from oncelog.records.columns import column_schema
from oncelog.spark.load_plan import Piece
from oncelog.spark.table import TableError


class FileFacts(NamedTuple):
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


def facts_of(path: Path) -> FileFacts:
    """What the footer says of the file's offsets."""
    metadata = pq.read_metadata(path)
    smallest, largest = [], []
    for group in range(metadata.num_row_groups):
        if metadata.row_group(group).num_rows:
            statistics = _statistics(metadata, group, "offset", path)
            smallest.append(int(statistics.min))
            largest.append(int(statistics.max))
    return FileFacts(metadata.num_rows, min(smallest, default=-1), max(largest, default=-1))


def check_staged(path: Path, piece: Piece) -> FileFacts:
    """The facts of a file that a task wrote for ``piece``. Raises TableError unless it holds that and only that."""
    wanted, facts = piece.wanted, facts_of(path)
    metadata = pq.read_metadata(path)
    within = facts.rows == 0 or wanted.start <= facts.first_offset <= facts.last_offset < wanted.end
    if not within or facts.rows > wanted.size:
        raise TableError(
            f"{path.name} was to hold offsets {wanted.start} to {wanted.end - 1} of {wanted.topic_partition} "
            f"and holds {facts.rows} rows from {facts.first_offset} to {facts.last_offset}"
        )
    for group in range(metadata.num_row_groups):
        if metadata.row_group(group).num_rows:
            _check_column(metadata, group, "topic", wanted.topic, path)
            _check_column(metadata, group, "partition", wanted.partition, path)
    return facts


def merge_kept(old: Path, staged: Path, below: int, merged: Path) -> None:
    """``merged``: the rows of ``old`` with offsets below ``below``, then those of ``staged``."""
    old_file, new_file = pq.ParquetFile(old), pq.ParquetFile(staged)
    schema = new_file.schema_arrow
    with pq.ParquetWriter(merged, schema) as writer:
        for batch in old_file.iter_batches():
            kept = batch.filter(pc.less(batch.column("offset"), pa.scalar(below, pa.int64())))
            if kept.num_rows:
                writer.write_batch(kept.cast(schema))
        for batch in new_file.iter_batches():
            writer.write_batch(batch.cast(schema))


def _check_column(metadata: pq.FileMetaData, group: int, column: str, wanted: object, path: Path) -> None:
    statistics = _statistics(metadata, group, column, path)
    if not statistics.min == statistics.max == wanted:
        raise TableError(f"{path.name} was to hold {column} {wanted} and holds {statistics.min} to {statistics.max}")


def _statistics(metadata: pq.FileMetaData, group: int, column: str, path: Path) -> Any:
    row_group = metadata.row_group(group)
    for index in range(row_group.num_columns):
        chunk = row_group.column(index)
        if chunk.path_in_schema == column:
            if chunk.statistics is None or not chunk.statistics.has_min_max:
                break
            return chunk.statistics
    raise TableError(f"{path.name} says nothing of the range of its column {column!r}")
