"""Rows → Parquet files, in the task that has them: good ones for the table, bad ones for the quarantine.

The rule: a file holds rows of one partition (and, in a partitioned table, of one day or hour), so each can be
committed, checked by its footer and replaced by itself. Names are unique to the attempt: a task that Spark runs twice
writes twice, and only the files that the successful attempt answers with are committed.
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
    """A file that a task wrote."""

    bad: bool
    file: NewFile


@dataclass(frozen=True)
class TaskFiles(VersionedPickle):
    """The function that each task of a step runs over its rows, for ``DataFrame.mapInArrow``."""

    store: FileStore
    schema: pa.Schema
    """The columns of the table's files."""
    levels: tuple[str, ...] = ()
    bad_store: FileStore | None = None
    """None: rows have no column ``_bad``."""
    bad_schema: pa.Schema | None = None
    skipped_bad: Spans = field(default_factory=dict)
    """Offsets whose bad rows the quarantine has already."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows; one batch of facts about the files."""
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
                    bad.write(self._kept_bad(batch.filter(pc.invert(is_good))))
            written = [Written(False, one) for one in good.finish()]
            written += [Written(True, one) for one in (bad.finish() if bad else ())]
        except BaseException:
            good.discard()
            if bad is not None:
                bad.discard()
            raise
        yield facts_of(written)

    def _kept_bad(self, rows: Any) -> Any:
        """The bad rows in the columns of the quarantine, without those that it has."""
        columns = {"value": "_value", "reason": BAD}
        assert self.bad_schema is not None
        arrays = [rows.column(columns.get(name, name)) for name in self.bad_schema.names]
        named: Any = pa.RecordBatch.from_arrays(arrays, names=self.bad_schema.names)
        for partition, span in self.skipped_bad.items():
            named = named.filter(pc.invert(rows_within(named, partition, span.begin, span.end)))
        return named


def facts_of(written: Sequence[Written]) -> pa.RecordBatch:
    """The files as rows, for the driver."""
    rows = [
        {"bad": bad, **file._asdict(), "levels": json.dumps(dict(file.levels), sort_keys=True)} for bad, file in written
    ]
    return pa.RecordBatch.from_pylist(rows, pa.schema(_FACTS_FIELDS))


def written_of(rows: Iterable[Mapping[str, Any]]) -> list[Written]:
    """The files that the tasks' answers name, in the order of partitions and offsets."""
    found = [
        Written(
            row["bad"], NewFile(**{name: row[name] for name in NewFile._fields} | {"levels": json.loads(row["levels"])})
        )
        for row in rows
    ]
    return sorted(found, key=lambda one: (one.file.topic, one.file.partition, one.file.first_offset, one.file.path))


class _Files:
    """The files of one kind that a task writes; one is open at a time."""

    def __init__(self, store: FileStore, schema: pa.Schema, levels: tuple[str, ...]) -> None:
        self._store, self._schema, self._keys = store, schema, ("topic", "partition", *levels)
        self._open: _OpenFile | None = None
        self._done: list[NewFile] = []

    def write(self, rows: pa.RecordBatch) -> None:
        """Write rows, a file for each run of equal keys."""
        for run in _runs(rows, self._keys):
            key = tuple(_plain(run.column(name)[0]) for name in self._keys)
            if self._open is None or self._open.key != key:
                self._close()
                self._open = _OpenFile(self._store, self._schema, key, self._keys[2:])
            self._open.write(run)

    def finish(self) -> list[NewFile]:
        """Close the last file; all that were written."""
        self._close()
        return self._done

    def discard(self) -> None:
        """Remove what was written by an attempt that failed, as far as the store lets it."""
        if self._open is not None:
            with suppress(Exception):
                self._open.abandon()
        for file in self._done:
            with suppress(Exception):
                self._store.delete(file.path)

    def _close(self) -> None:
        if self._open is not None:
            open_file, self._open = self._open, None
            self._done.append(open_file.finish())


class _OpenFile:
    """A file under way; rows are collected until they are worth a row group."""

    def __init__(self, store: FileStore, schema: pa.Schema, key: tuple[Any, ...], levels: tuple[str, ...]) -> None:
        self.key, self._store, self._schema = key, store, schema
        self._levels = {
            name: None if value is None else str(value) for name, value in zip(levels, key[2:], strict=True)
        }
        folders = [f"{name}={NO_VALUE if value is None else value}" for name, value in self._levels.items()]
        self._path, self._stream = store.create(f"{uuid.uuid4().hex}.parquet", "/".join(folders))
        self._writer = pq.ParquetWriter(self._stream, schema, compression="snappy")
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = self._rows = 0
        self._first = self._last = -1

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows of this file's keys."""
        least, most = (int(one.as_py()) for one in pc.min_max(rows.column("offset")).values())
        self._first = least if self._first < 0 else min(self._first, least)
        self._last = max(self._last, most)
        columns = [rows.column(one.name).cast(one.type) for one in self._schema]
        self._waiting.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += int(rows.nbytes or 0)
        if self._waiting_rows >= _ROWS_A_GROUP or self._waiting_bytes >= _BYTES_A_GROUP:
            self._write_group()

    def finish(self) -> NewFile:
        """Close the file: from here on it is durable."""
        self._write_group()
        self._writer.close()
        self._stream.close()
        topic, partition = self.key[:2]
        size = self._store.size(self._path)
        return NewFile(self._path, size, topic, partition, self._rows, self._first, self._last, self._levels)

    def abandon(self) -> None:
        """Close the file and remove it."""
        self._writer.close()
        self._stream.close()
        self._store.delete(self._path)

    def _write_group(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
            self._rows += self._waiting_rows
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0


def _runs(rows: Any, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """``rows`` in slices in which all keys are equal."""
    if not rows.num_rows:
        return
    cuts: set[int] = set()
    for name in keys:
        column = rows.column(name)
        before, after = column.slice(0, len(column) - 1), column.slice(1)
        either = pc.or_(pc.is_null(before), pc.is_null(after))
        both = pc.and_(pc.is_null(before), pc.is_null(after))
        differ = pc.if_else(either, pc.invert(both), pc.not_equal(before, after))
        cuts.update(int(at) + 1 for at in pc.indices_nonzero(differ).to_numpy())
    bounds = [0, *sorted(cuts), rows.num_rows]
    for start, end in pairwise(bounds):
        yield rows.slice(start, end - start)


def _plain(value: pa.Scalar[Any]) -> Any:
    return value.as_py()


def footer_of(store: FileStore, path: str) -> pq.FileMetaData:
    """The footer of a file, read from where it is."""
    with store.open(path) as stream:
        return pq.read_metadata(stream)
