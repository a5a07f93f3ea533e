"""Small files of an Iceberg table become larger ones.

pyiceberg has no rewrite of data files, so it is made of what it has: a scan of the small files, one new file for each
group, and one OVERWRITE snapshot that takes those out and puts these in. Rows are neither added nor changed, but to a
reader of changes the snapshot looks as if they were: it says ``oncelog.compaction`` in its summary. A table that
another engine maintains needs none of this.

The rule: files of one partition value are merged, those with delete files are left alone, and the new files have to
have as many rows as the old. If another writer took one of the old files out meanwhile, nothing is changed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, parquet_file_to_data_file, schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from oncelog.spark.table.directory import TableBusy, TableError
from oncelog.spark.targets.iceberg_commit import one_line

_ATTEMPTS: Final = 10
_SMALL: Final = 0.75
"""A file of at least this share of the target size is left as it is."""


def compact_iceberg(table: Table, target_bytes: int, name: str) -> tuple[int, int]:
    """Merge small files up to ``target_bytes``; the number of files before and after. Raises TableError."""
    tasks = list(table.scan().plan_files())
    groups = list(_groups(tasks, table, target_bytes))
    old = [task.file for group in groups for task in group]
    if not old:
        return len(tasks), len(tasks)
    new: list[DataFile] = []
    try:
        new += (_merge(table, group) for group in groups)
        _commit(table, old, new, name)
    except BaseException as error:
        if not isinstance(error, Exception) or isinstance(error, TableError):
            for one in new:
                with suppress(Exception):
                    table.io.delete(one.file_path)
        raise
    return len(tasks), len(tasks) - len(old) + len(new)


def _groups(tasks: Sequence[FileScanTask], table: Table, target_bytes: int) -> Iterator[list[FileScanTask]]:
    by_value: dict[str, list[FileScanTask]] = {}
    for task in tasks:
        small = task.file.file_size_in_bytes < target_bytes * _SMALL
        if small and not task.delete_files and task.file.spec_id == table.spec().spec_id:
            by_value.setdefault(repr(task.file.partition), []).append(task)
    for own in by_value.values():
        group: list[FileScanTask] = []
        size = 0
        for task in own:
            if group and size + task.file.file_size_in_bytes > target_bytes:
                yield from [group] if len(group) > 1 else []
                group, size = [], 0
            group.append(task)
            size += task.file.file_size_in_bytes
        yield from [group] if len(group) > 1 else []


def _merge(table: Table, group: Sequence[FileScanTask]) -> DataFile:
    """One new file with the rows of a group, in the columns of today."""
    path = table.location_provider().new_data_location(f"{uuid.uuid4().hex}.parquet")
    schema, rows = schema_to_pyarrow(table.schema()), 0
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    stream: Any = table.io.new_output(path).create()
    with stream, pq.ParquetWriter(stream, schema, compression="zstd") as writer:
        for task in group:
            for batch in scan.to_record_batches([task]):
                writer.write_batch(batch.cast(schema))
                rows += batch.num_rows
    wanted = sum(task.file.record_count for task in group)
    if rows != wanted:
        table.io.delete(path)
        raise TableError(f"{len(group)} files have {wanted} rows, and {rows} were read of them: nothing was changed")
    return parquet_file_to_data_file(table.io, table.metadata, path)


def _commit(table: Table, old: Sequence[DataFile], new: Sequence[DataFile], name: str) -> None:
    said = {"oncelog.compaction": f"{len(old)} files to {len(new)}"}
    for attempt in range(_ATTEMPTS):
        live = {task.file.file_path for task in table.scan().plan_files()}
        if any(one.file_path not in live for one in old):
            raise TableBusy(f"{name} was not compacted: another writer replaced some of its files meanwhile")
        try:
            with table.transaction() as change, change.update_snapshot(snapshot_properties=said).overwrite() as rewrite:
                for one in old:
                    rewrite.delete_data_file(one)
                for one in new:
                    rewrite.append_data_file(one)
        except (CommitFailedException, ValidationException) as error:
            if attempt == _ATTEMPTS - 1:
                raise TableBusy(f"{name} was not compacted: {one_line(error)}") from error
            table.refresh()
        else:
            return
