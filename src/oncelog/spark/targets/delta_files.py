"""Rows of a Delta table that are to go: the files to remove, and new ones with the rows of those that stay.

The rule: copy on write, as Delta's own DELETE does it: a file all of whose rows go is removed; one that has others, too
(a compaction merged it), is removed and written again without them. Deletion vectors are another writer's, and are not
read here: a table that has some is refused.
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
    """The files to remove, and those written with rows that stay."""

    removed: list[RemoveAction]
    written: list[NewFile]


def replacement(table: DeltaTable, store: FileStore, ranges: Sequence[OffsetRange]) -> Replacement:
    """The files that a commit has to remove and add so that the rows of ``ranges`` are gone. Raises TableError."""
    found = Replacement([], [])
    if not ranges:
        return found
    if "deletionVectors" in (table.protocol().reader_features or ()):
        raise TableError("rows cannot be replaced in a table with deletion vectors: purge them first (REORG … PURGE)")
    outside = table.metadata().partition_columns
    for path, size, values, actions in _files(table, outside):
        if not any(_may_have(actions, one) for one in ranges):
            continue
        kept = _rewrite(store, path, values, ranges)
        if isinstance(kept, bool):
            continue
        found.removed.append(RemoveAction(path, True, time.time_ns() // 1_000_000, size, dict(values)))
        if kept is not None:
            found.written.append(kept)
    return found


def _files(
    table: DeltaTable, outside: Sequence[str]
) -> Iterator[tuple[str, int, dict[str, str | None], Mapping[str, Any]]]:
    exported: Any = table.get_add_actions(flatten=True)
    for row in pa.table(exported).to_pylist():
        values = {name: row.get(f"partition.{name}") for name in outside}
        said = {name: None if value is None else str(value) for name, value in values.items()}
        yield row["path"], row["size_bytes"], said, row


def _may_have(row: Mapping[str, Any], one: OffsetRange) -> bool:
    """True unless a file's statistics say that it has no row of the range."""
    for name, least, most in (
        ("topic", one.topic, one.topic),
        ("partition", one.partition, one.partition),
        ("offset", one.start, one.end - 1),
    ):
        smallest, largest = row.get(f"min.{name}"), row.get(f"max.{name}")
        if smallest is not None and largest is not None and (smallest > most or largest < least):
            return False
    return True


def _rewrite(
    store: FileStore, path: str, values: Mapping[str, str | None], ranges: Sequence[OffsetRange]
) -> NewFile | bool | None:
    """The file of the rows that stay; None if none does, False if all do."""
    with store.open(path) as stream:
        file = pq.ParquetFile(stream)
        going = sum(_inside(batch, ranges).true_count for batch in file.iter_batches(columns=list(_PLACE)))
        if not going:
            return False
        if going == file.metadata.num_rows:
            return None
        folders = "/".join(f"{name}={NO_VALUE if value is None else value}" for name, value in values.items())
        new_path, out = store.create(f"{uuid.uuid4().hex}.parquet", folders)
        rows, first, last, topics, partitions = 0, -1, -1, set[Any](), set[Any]()
        schema = file.schema_arrow
        with pq.ParquetWriter(out, schema, compression="snappy") as writer:
            for batch in file.iter_batches():
                kept = batch.filter(pc.invert(_inside(batch, ranges)))
                if kept.num_rows:
                    least, most = (int(one.as_py()) for one in pc.min_max(kept.column("offset")).values())
                    first, last = least if first < 0 else min(first, least), max(last, most)
                    topics.update(pc.unique(kept.column("topic")).to_pylist())
                    partitions.update(pc.unique(kept.column("partition")).to_pylist())
                    writer.write_batch(kept)
                    rows += kept.num_rows
        out.close()
    one_partition = len(topics) == 1 and len(partitions) == 1
    topic, partition = (topics.pop(), partitions.pop()) if one_partition else ("", -1)
    return NewFile(new_path, store.size(new_path), topic, partition, rows, first, last, values)


def _inside(batch: Any, ranges: Sequence[OffsetRange]) -> Any:
    """True for the rows that go."""
    inside: Any = pa.repeat(pa.scalar(False), batch.num_rows)
    for one in ranges:
        inside = pc.or_(inside, rows_within(batch, one.topic_partition, one.start, one.end))
    return inside
