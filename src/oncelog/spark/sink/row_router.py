"""Arrow batches with the sink's columns → encoded batches by partition.

Columns by name, as in Spark's Kafka sink: ``value`` (string or binary), and optionally ``key`` (the same), ``topic``
(string; the option ``topic`` comes before it), ``partition`` (int), ``headers`` (array of key and value) and, ours,
``timestamp``. A row goes to its ``partition``, else to its key's by the Java client's hash, else to the next partition
in turn: one for each chunk of ``GATHER_BYTES``, so that batches are large.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import MIB
from oncelog.client.machine.producer import ProducerSettings
from oncelog.records.columns.encode import Body, Rows, encode
from oncelog.records.columns.murmur2_columns import murmur2_of
from oncelog.spark.session.errors import SinkError

Array: TypeAlias = "pa.Array[Any]"
Longs: TypeAlias = npt.NDArray[np.int64]

GATHER_BYTES: Final = 4 * MIB
"""Arrow batches are put together up to this size: a numpy step costs the same for ten rows as for a thousand."""


def coalesced(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches put together, none of them empty."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        size += batch.nbytes
        if size >= GATHER_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


class TopicLimits(NamedTuple):
    """A topic: its partitions, and how large a batch of it may be."""

    partitions: int
    batch_bytes: int


class Router:
    """Routes rows to partitions. ``limits_of`` looks up a topic, and creates it if it is missing."""

    def __init__(self, topic: str | None, limits_of: Callable[[str], TopicLimits], settings: ProducerSettings) -> None:
        self._topic = topic
        self._limits_of = limits_of
        self._settings = settings
        self._turn = 0

    def route(self, table: pa.Table) -> Iterator[tuple[TopicPartition, Rows]]:
        """The rows of each partition, in the order they came."""
        columns = {name.lower(): column for name, column in zip(table.column_names, table.columns, strict=True)}
        rows = Rows(
            _bytes(columns.get("key")),
            _bytes(columns["value"]),
            _timestamps(columns, table.num_rows),
            _headers(columns),
        )
        names, which = self._topics(columns, table.num_rows)
        for number, name in enumerate(names):
            mine = None if which is None else np.flatnonzero(which == number)
            chosen = rows if mine is None else _take(rows, mine)
            wanted = columns.get("partition")
            if wanted is not None and mine is not None:
                wanted = wanted.take(mine)
            yield from self._partitioned(TopicName(name), chosen, wanted)
        self._turn += 1

    def encoded(self, partition: TopicPartition, rows: Rows) -> Iterator[Body]:
        """Batches of one partition's rows."""
        settings = self._settings
        batch_bytes = min(settings.batch_bytes, self._limits_of(partition.topic).batch_bytes)
        return encode(rows, batch_bytes=batch_bytes, codec=settings.codec, level=settings.level)

    def _topics(self, columns: dict[str, Any], count: int) -> tuple[list[str], Longs | None]:
        if self._topic is not None:
            return [self._topic], None
        column = columns["topic"]
        if column.null_count:
            raise SinkError("null topic present in the data. Use the topic option for setting a topic.")
        encoded = column.combine_chunks().dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.chunk(0)
        names: list[str] = encoded.dictionary.to_pylist()
        return names, None if len(names) == 1 else np.asarray(encoded.indices).astype(np.int64)

    def _partitioned(self, topic: TopicName, rows: Rows, wanted: Any) -> Iterator[tuple[TopicPartition, Rows]]:
        count = self._limits_of(topic).partitions
        where = _partitions(rows, wanted, count, self._turn % count)
        if isinstance(where, int):
            yield TopicPartition(topic, where), rows
            return
        for partition in np.unique(where).tolist():
            yield TopicPartition(topic, partition), _take(rows, np.flatnonzero(where == partition))


def _partitions(rows: Rows, wanted: Any, count: int, turn: int) -> Longs | int:
    """The partition of all rows, or an array with one for each row."""
    where: Longs = np.full(len(rows), turn, np.int64)
    if rows.keys is not None and rows.keys.null_count < len(rows):
        hashed = (murmur2_of(rows.keys) & 0x7FFFFFFF).astype(np.int64) % count
        where = np.where(np.asarray(rows.keys.is_valid()), hashed, turn)
    elif wanted is None:
        return turn
    if wanted is not None and wanted.null_count < len(rows):
        given = np.asarray(wanted.combine_chunks().fill_null(-1)).astype(np.int64)
        valid = np.asarray(wanted.is_valid())
        out = np.flatnonzero(valid & ((given < 0) | (given >= count)))
        if len(out):
            raise SinkError(f"a row names partition {given[out[0]]}, but the topic has {count} partitions")
        where = np.where(valid, given, where)
    return int(where[0]) if len(where) and bool((where == where[0]).all()) else where


def _take(rows: Rows, which: Longs) -> Rows:
    if len(which) == len(rows):
        return rows
    return Rows(
        None if rows.keys is None else rows.keys.take(which),
        rows.values.take(which),
        rows.timestamps[which],
        None if rows.headers is None else [rows.headers[index] for index in which.tolist()],
    )


def _bytes(column: Any) -> Any:
    if column is None:
        return None
    one = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()  # which copies one chunk, too
    if isinstance(one, pa.ChunkedArray):
        one = one.chunk(0)
    return one.cast(pa.binary())


def _timestamps(columns: dict[str, Any], count: int) -> Longs:
    """Timestamps in milliseconds, before 1970 too (-1 is a record without one); the time of day for rows without."""
    now = time.time_ns() // 1_000_000
    column = columns.get("timestamp")
    if column is None:
        return np.full(count, now, np.int64)
    micros = column.combine_chunks().cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return np.asarray(micros.fill_null(now * 1000)).astype(np.int64) // 1000


def _headers(columns: dict[str, Any]) -> list[tuple[tuple[str, bytes | None], ...]] | None:
    column = columns.get("headers")
    if column is None or column.null_count == len(column):
        return None
    return [tuple(map(_header, headers)) if headers is not None else () for headers in column.to_pylist()]


def _header(one: dict[str, Any] | None) -> tuple[str, bytes | None]:
    if one is None or one["key"] is None:
        raise SinkError("a header of a row is null, or has a null key: a record's headers have names")
    return one["key"], one["value"]
