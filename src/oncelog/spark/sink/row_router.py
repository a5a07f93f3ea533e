"""Routes Arrow batches with the sink's columns to partitions, as encoded batches.

Columns are matched by name, as in Spark's Kafka sink (docs/spark-sink.md); ``timestamp`` is oncelog's own. A row goes
to its ``partition``, else by the Java client's hash of its key, else to the next partition in turn.
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

# Arrow batches are combined up to this size: a numpy step costs the same for ten rows as for a thousand.
GATHER_BYTES: Final = 4 * MIB


def coalesce(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        pending.append(batch)
        size += batch.nbytes
        if size >= GATHER_BYTES:
            yield pa.Table.from_batches(pending)
            pending, size = [], 0
    if pending:
        yield pa.Table.from_batches(pending)


class TopicLimits(NamedTuple):
    partitions: int
    batch_bytes: int


class Router:
    """Routes rows to partitions. ``limits_of`` looks up a topic, and creates a missing one."""

    def __init__(self, topic: str | None, limits_of: Callable[[str], TopicLimits], settings: ProducerSettings) -> None:
        self._topic = topic
        self._limits_of = limits_of
        self._settings = settings
        self._turn = 0

    def route(self, table: pa.Table) -> Iterator[tuple[TopicPartition, Rows]]:
        columns = {name.lower(): column for name, column in zip(table.column_names, table.columns, strict=True)}
        rows = Rows(
            _bytes(columns.get("key")),
            _bytes(columns["value"]),
            _timestamps(columns, table.num_rows),
            _headers(columns),
        )
        names, topic_indexes = self._topics(columns, table.num_rows)
        for number, name in enumerate(names):
            own_rows = None if topic_indexes is None else np.flatnonzero(topic_indexes == number)
            selected = rows if own_rows is None else _take(rows, own_rows)
            explicit = columns.get("partition")
            if explicit is not None and own_rows is not None:
                explicit = explicit.take(own_rows)
            yield from self._partitioned(TopicName(name), selected, explicit)
        # The next partition only after a whole chunk, so that batches are large.
        self._turn += 1

    def encoded(self, partition: TopicPartition, rows: Rows) -> Iterator[Body]:
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

    def _partitioned(self, topic: TopicName, rows: Rows, explicit: Any) -> Iterator[tuple[TopicPartition, Rows]]:
        count = self._limits_of(topic).partitions
        targets = _partitions(rows, explicit, count, self._turn % count)
        if isinstance(targets, int):
            yield TopicPartition(topic, targets), rows
            return
        for partition in np.unique(targets).tolist():
            yield TopicPartition(topic, partition), _take(rows, np.flatnonzero(targets == partition))


def _partitions(rows: Rows, explicit: Any, count: int, turn: int) -> Longs | int:
    targets: Longs = np.full(len(rows), turn, np.int64)
    if rows.keys is not None and rows.keys.null_count < len(rows):
        # As the Java client does, so that equal keys meet in one partition.
        hashed = (murmur2_of(rows.keys) & 0x7FFFFFFF).astype(np.int64) % count
        targets = np.where(np.asarray(rows.keys.is_valid()), hashed, turn)
    elif explicit is None:
        return turn
    if explicit is not None and explicit.null_count < len(rows):
        named = np.asarray(explicit.combine_chunks().fill_null(-1)).astype(np.int64)
        valid = np.asarray(explicit.is_valid())
        out_of_range = np.flatnonzero(valid & ((named < 0) | (named >= count)))
        if len(out_of_range):
            raise SinkError(f"a row names partition {named[out_of_range[0]]}, but the topic has {count} partitions")
        targets = np.where(valid, named, targets)
    return int(targets[0]) if len(targets) and bool((targets == targets[0]).all()) else targets


def _take(rows: Rows, indexes: Longs) -> Rows:
    if len(indexes) == len(rows):
        return rows
    return Rows(
        None if rows.keys is None else rows.keys.take(indexes),
        rows.values.take(indexes),
        rows.timestamps[indexes],
        None if rows.headers is None else [rows.headers[index] for index in indexes.tolist()],
    )


def _bytes(column: Any) -> Any:
    if column is None:
        return None
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()  # which would copy a single chunk
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0)
    return array.cast(pa.binary())


def _timestamps(columns: dict[str, Any], count: int) -> Longs:
    # Timestamps in milliseconds, also before 1970 (−1: a record without one); null becomes the current time.
    now = time.time_ns() // 1_000_000
    column = columns.get("timestamp")
    if column is None:
        return np.full(count, now, np.int64)
    # Arrow's other units would need a case each.
    micros = column.combine_chunks().cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return np.asarray(micros.fill_null(now * 1000)).astype(np.int64) // 1000


def _headers(columns: dict[str, Any]) -> list[tuple[tuple[str, bytes | None], ...]] | None:
    column = columns.get("headers")
    if column is None or column.null_count == len(column):
        return None
    return [tuple(map(_header, headers)) if headers is not None else () for headers in column.to_pylist()]


def _header(header: dict[str, Any] | None) -> tuple[str, bytes | None]:
    if header is None or header["key"] is None:
        raise SinkError("a row has a null header, or one with a null key: a record's headers must have names")
    return header["key"], header["value"]
