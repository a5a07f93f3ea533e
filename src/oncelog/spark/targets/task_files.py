"""Writes rows to Parquet files in the task that has them: good ones for the table, bad ones for the quarantine.

A file holds rows of one partition (and of one day or hour in a partitioned table), so each can be committed, checked by
its footer and replaced individually. Names are unique to the attempt: only those that the successful attempt reports
are committed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from oncelog.spark.json_values.decoding import BAD
from oncelog.spark.session.pickling import VersionedPickle
from oncelog.spark.table.parquet_files import NO_VALUE, rows_within
from oncelog.spark.targets.table_target import FileStore, NewFile, Spans

FACTS: Final = (
    "bad BOOLEAN, path STRING, size LONG, topic STRING, partition INT, `rows` LONG, first_offset LONG, "
    "last_offset LONG, levels STRING"
)
_FACTS_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("bad", pa.bool_()),
    pa.field("path", pa.string()),
    pa.field("size", pa.int64()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("rows", pa.int64()),
    pa.field("first_offset", pa.int64()),
    pa.field("last_offset", pa.int64()),
    pa.field("levels", pa.string()),
]
_ROWS_A_GROUP: Final = 250_000
_BYTES_A_GROUP: Final = 64 * 1024 * 1024


class Written(NamedTuple):
    bad: bool
    file: NewFile


@dataclass(frozen=True)
class TaskFiles(VersionedPickle):
    """The function that each task of a step applies to its rows, through ``DataFrame.mapInArrow``."""

    store: FileStore
    # The columns of the table's files.
    schema: pa.Schema
    levels: tuple[str, ...] = ()
    # None if rows have no column ``_bad``.
    bad_store: FileStore | None = None
    bad_schema: pa.Schema | None = None
    # Offsets whose bad rows are already in the quarantine.
    skipped_bad: Spans = field(default_factory=dict)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        good = _Files(self.store, self.schema, self.levels)
        bad = None if self.bad_store is None else _Files(self.bad_store, self.bad_schema or self.schema, ())
        try:
            for batch in batches:
                if bad is None:
                    good.write(batch)
                    continue
                is_good = pc.is_null(batch.column(BAD))
                good.write(batch.filter(is_good))
                if is_good.true_count < batch.num_rows:
                    bad.write(self._new_bad_rows(batch.filter(pc.invert(is_good))))
            written = [Written(False, file) for file in good.finish()]
            written += [Written(True, file) for file in (bad.finish() if bad else ())]
        except BaseException:
            good.discard()
            if bad is not None:
                bad.discard()
            raise
        yield facts_of(written)

    def _new_bad_rows(self, rows: Any) -> Any:
        columns = {"value": "_value", "reason": BAD}
        assert self.bad_schema is not None
        arrays = [rows.column(columns.get(name, name)) for name in self.bad_schema.names]
        bad_rows: Any = pa.RecordBatch.from_arrays(arrays, names=self.bad_schema.names)
        for partition, span in self.skipped_bad.items():
            bad_rows = bad_rows.filter(pc.invert(rows_within(bad_rows, partition, span.begin, span.end)))
        return bad_rows


def facts_of(written: Sequence[Written]) -> pa.RecordBatch:
    rows = [
        {"bad": bad, **file._asdict(), "levels": json.dumps(dict(file.levels), sort_keys=True)} for bad, file in written
    ]
    return pa.RecordBatch.from_pylist(rows, pa.schema(_FACTS_FIELDS))


def written_of(rows: Iterable[Mapping[str, Any]]) -> list[Written]:
    """The files named in the tasks' results, in order of partitions and offsets."""
    files = [
        Written(
            row["bad"], NewFile(**{name: row[name] for name in NewFile._fields} | {"levels": json.loads(row["levels"])})
        )
        for row in rows
    ]
    return sorted(
        files, key=lambda entry: (entry.file.topic, entry.file.partition, entry.file.first_offset, entry.file.path)
    )


class _Files:
    def __init__(self, store: FileStore, schema: pa.Schema, levels: tuple[str, ...]) -> None:
        self._store, self._schema, self._keys = store, schema, ("topic", "partition", *levels)
        self._open: _OpenFile | None = None
        self._done: list[NewFile] = []

    def write(self, rows: pa.RecordBatch) -> None:
        for run in _runs(rows, self._keys):
            # One file per key, so that each can be committed and replaced individually.
            key = tuple(_python_value(run.column(name)[0]) for name in self._keys)
            if self._open is None or self._open.key != key:
                self._close()
                self._open = _OpenFile(self._store, self._schema, key, self._keys[2:])
            self._open.write(run)

    def finish(self) -> list[NewFile]:
        self._close()
        return self._done

    def discard(self) -> None:
        """Remove the files of a failed attempt, as far as the store allows."""
        if self._open is not None:
            with suppress(Exception):
                self._open.discard_file()
        for file in self._done:
            with suppress(Exception):
                self._store.delete(file.path)

    def _close(self) -> None:
        if self._open is not None:
            open_file, self._open = self._open, None
            self._done.append(open_file.finish())


class _OpenFile:
    """An open file; rows are collected until they fill a row group."""

    def __init__(self, store: FileStore, schema: pa.Schema, key: tuple[Any, ...], levels: tuple[str, ...]) -> None:
        self.key, self._store, self._schema = key, store, schema
        self._levels = {
            name: None if value is None else str(value) for name, value in zip(levels, key[2:], strict=True)
        }
        folders = [f"{name}={NO_VALUE if value is None else value}" for name, value in self._levels.items()]
        # A random name: a task that Spark runs twice writes two files.
        self._path, self._stream = store.create(f"{uuid.uuid4().hex}.parquet", "/".join(folders))
        self._writer = pq.ParquetWriter(self._stream, schema, compression="snappy")
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = self._rows = 0
        self._first = self._last = -1

    def write(self, rows: pa.RecordBatch) -> None:
        lowest, highest = (int(bound.as_py()) for bound in pc.min_max(rows.column("offset")).values())
        self._first = lowest if self._first < 0 else min(self._first, lowest)
        self._last = max(self._last, highest)
        columns = [rows.column(field.name).cast(field.type) for field in self._schema]
        self._pending.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._pending_rows += rows.num_rows
        self._pending_bytes += int(rows.nbytes or 0)
        if self._pending_rows >= _ROWS_A_GROUP or self._pending_bytes >= _BYTES_A_GROUP:
            self._write_group()

    def finish(self) -> NewFile:
        self._write_group()
        self._writer.close()
        self._stream.close()
        topic, partition = self.key[:2]
        size = self._store.size(self._path)
        return NewFile(self._path, size, topic, partition, self._rows, self._first, self._last, self._levels)

    def discard_file(self) -> None:
        self._writer.close()
        self._stream.close()
        self._store.delete(self._path)

    def _write_group(self) -> None:
        if self._pending:
            self._writer.write_table(pa.Table.from_batches(self._pending, self._schema))
            self._rows += self._pending_rows
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0


def _runs(rows: Any, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield slices of ``rows`` in which all keys are equal."""
    if not rows.num_rows:
        return
    cuts: set[int] = set()
    for name in keys:
        column = rows.column(name)
        before, after = column.slice(0, len(column) - 1), column.slice(1)
        either = pc.or_(pc.is_null(before), pc.is_null(after))
        both = pc.and_(pc.is_null(before), pc.is_null(after))
        differ = pc.if_else(either, pc.invert(both), pc.not_equal(before, after))
        cuts.update(int(index) + 1 for index in pc.indices_nonzero(differ).to_numpy())
    bounds = [0, *sorted(cuts), rows.num_rows]
    for start, end in pairwise(bounds):
        yield rows.slice(start, end - start)


def _python_value(value: pa.Scalar[Any]) -> Any:
    return value.as_py()


def footer_of(store: FileStore, path: str) -> pq.FileMetaData:
    with store.open(path) as stream:
        return pq.read_metadata(stream)
