"""Finds the files of a Delta table that hold rows to remove, and rewrites them with the rows to keep.

Copy on write, as in Delta's own DELETE: a file that holds only such rows is removed, one with others is rewritten.
Deletion vectors are not read here, so a table with any is rejected.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import RemoveAction

from oncelog.spark.source.offset_ranges import OffsetRange
from oncelog.spark.table.directory import TableError
from oncelog.spark.table.parquet_files import NO_VALUE, rows_within
from oncelog.spark.targets.table_target import FileStore, NewFile

_PLACE = ("topic", "partition", "offset")


class Replacement(NamedTuple):
    removed: list[RemoveAction]
    written: list[NewFile]


def replacement(table: DeltaTable, store: FileStore, ranges: Sequence[OffsetRange]) -> Replacement:
    """Prepare what a commit must remove and add so that the rows of ``ranges`` disappear. Raises TableError."""
    result = Replacement([], [])
    if not ranges:
        return result
    if "deletionVectors" in (table.protocol().reader_features or ()):
        raise TableError("rows cannot be replaced in a table with deletion vectors: purge them first (REORG … PURGE)")
    outside = table.metadata().partition_columns
    for path, size, values, actions in _files(table, outside):
        if not any(_may_have(actions, offset_range) for offset_range in ranges):
            continue
        rewritten = _rewrite(store, path, values, ranges)
        if isinstance(rewritten, bool):
            continue
        result.removed.append(RemoveAction(path, True, time.time_ns() // 1_000_000, size, dict(values)))
        if rewritten is not None:
            result.written.append(rewritten)
    return result


def _files(
    table: DeltaTable, outside: Sequence[str]
) -> Iterator[tuple[str, int, dict[str, str | None], Mapping[str, Any]]]:
    exported: Any = table.get_add_actions(flatten=True)
    for row in pa.table(exported).to_pylist():
        values = {name: row.get(f"partition.{name}") for name in outside}
        texts = {name: None if value is None else str(value) for name, value in values.items()}
        yield row["path"], row["size_bytes"], texts, row


def _may_have(row: Mapping[str, Any], offset_range: OffsetRange) -> bool:
    """False if a file's statistics rule out rows of the range."""
    for name, lowest, highest in (
        ("topic", offset_range.topic, offset_range.topic),
        ("partition", offset_range.partition, offset_range.partition),
        ("offset", offset_range.start, offset_range.end - 1),
    ):
        smallest, largest = row.get(f"min.{name}"), row.get(f"max.{name}")
        if smallest is not None and largest is not None and (smallest > highest or largest < lowest):
            return False
    return True


def _rewrite(
    store: FileStore, path: str, values: Mapping[str, str | None], ranges: Sequence[OffsetRange]
) -> NewFile | bool | None:
    """Rewrite a file without the rows of ``ranges``; None if no row remains, False if all do."""
    with store.open(path) as stream:
        file = pq.ParquetFile(stream)
        removed_rows = sum(_removed_mask(batch, ranges).true_count for batch in file.iter_batches(columns=list(_PLACE)))
        if not removed_rows:
            return False
        if removed_rows == file.metadata.num_rows:
            return None
        folders = "/".join(f"{name}={NO_VALUE if value is None else value}" for name, value in values.items())
        new_path, out = store.create(f"{uuid.uuid4().hex}.parquet", folders)
        rows, first, last, topics, partitions = 0, -1, -1, set[Any](), set[Any]()
        schema = file.schema_arrow
        with pq.ParquetWriter(out, schema, compression="snappy") as writer:
            for batch in file.iter_batches():
                remaining = batch.filter(pc.invert(_removed_mask(batch, ranges)))
                if remaining.num_rows:
                    lowest, highest = (int(bound.as_py()) for bound in pc.min_max(remaining.column("offset")).values())
                    first, last = lowest if first < 0 else min(first, lowest), max(last, highest)
                    topics.update(pc.unique(remaining.column("topic")).to_pylist())
                    partitions.update(pc.unique(remaining.column("partition")).to_pylist())
                    writer.write_batch(remaining)
                    rows += remaining.num_rows
        out.close()
    one_partition = len(topics) == 1 and len(partitions) == 1
    topic, partition = (topics.pop(), partitions.pop()) if one_partition else ("", -1)
    return NewFile(new_path, store.size(new_path), topic, partition, rows, first, last, values)


def _removed_mask(batch: Any, ranges: Sequence[OffsetRange]) -> Any:
    mask: Any = pa.repeat(pa.scalar(False), batch.num_rows)
    for offset_range in ranges:
        mask = pc.or_(mask, rows_within(batch, offset_range.topic_partition, offset_range.start, offset_range.end))
    return mask
