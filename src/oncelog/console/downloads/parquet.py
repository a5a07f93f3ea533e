"""Records as a Parquet file, with the columns of ``oncelog.read_arrow`` and, unless all are committed, ``state``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from oncelog.base.units import KIB, MIB
from oncelog.client.machine.positions import Fetched
from oncelog.console.downloads.reading import Remaining
from oncelog.console.downloads.selection import Selection
from oncelog.console.records.search import Hit, scanned
from oncelog.console.records.transaction_outcomes import Outcomes
from oncelog.records.batch import crc_matches, iter_headers
from oncelog.records.columns.arrow_arrays import Array
from oncelog.records.columns.decode import Selection as Columns
from oncelog.records.columns.decode import column_schema, decode
from oncelog.records.errors import CorruptBatch

# Batches become columns by `records.columns`, without a Python step per record. An incomplete file says so in its
# metadata, under the key `oncelog`.
#
# A large value is a row group of its own, a view of the fetch response, and is freed before the lock is released.
# Arrow writes into an unnamed temporary file from which the response is sent: a 10 MB page that passed through Python
# would be in memory once more. Neither pandas nor pyarrow.compute is imported for the console's own columns (60 MB).

_ROW_GROUP_BYTES: Final = 4 * MIB
_PIECE: Final = 192 * KIB
# Columns of bytes: a dictionary or min/max statistics of large values would copy them.
_CONTENT: Final = ("key", "value", "headers")
_STATE: Final = pa.field("state", pa.string())


class _Sent:
    """A temporary file that Arrow writes and this process reads; it is unlinked at once."""

    def __init__(self) -> None:
        with NamedTemporaryFile(prefix="oncelog-", delete=False) as named:
            self._descriptor = os.open(named.name, os.O_RDONLY)
            self.sink = pa.OSFile(named.name, "w")
            Path(named.name).unlink()
        self._at = 0

    def __del__(self) -> None:
        os.close(self._descriptor)

    def pieces(self) -> Iterator[bytes]:
        while piece := os.pread(self._descriptor, _PIECE, self._at):
            self._at += len(piece)
            yield piece


class ParquetFile:
    """Row groups hold about 4 MiB, or one large value."""

    needs_lock = True

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        schema = column_schema(include_headers=True)
        self._schema = schema if selection.committed else schema.append(_STATE)
        self._file = _Sent()
        self._writer = pq.ParquetWriter(
            self._file.sink,
            self._schema,
            compression="zstd",
            use_dictionary=[name for name in self._schema.names if name not in _CONTENT],  # type: ignore[arg-type]  # or names
            write_statistics=[name for name in self._schema.names if name not in _CONTENT],
        )
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0

    def take(self, fetched: Fetched, states: Mapping[int, str], until: int, remaining: Remaining) -> int:
        """Write a fetch response. Raises CorruptBatch: columns are read together or not at all."""
        topic, partition = fetched.partition
        for at, header in iter_headers(fetched.records):
            if not crc_matches(fetched.records, at, header):
                raise CorruptBatch(f"{fetched.partition}: the checksum of the batch at {header.base_offset} is wrong")
        columns = Columns(topic, partition, fetched.position, until, self._selection.committed, include_headers=True)
        hits = self._hits(fetched, states, until)
        for piece in decode(fetched.records, columns, fetched.aborted if self._selection.committed else ()):
            for rows in _runs(piece.rows, hits):
                some = rows.slice(0, remaining.records)
                remaining.take(some.num_rows, some.nbytes)
                self._add(some, fetched, states)
                if some.num_rows < rows.num_rows:
                    return int(rows.column("offset")[some.num_rows].as_py())
                if remaining.is_full():
                    return int(rows.column("offset")[-1].as_py()) + 1
        return min(fetched.next_offset, until)

    def end(self, notice: Mapping[str, Any] | None) -> None:
        self._flush()
        self._writer.add_key_value_metadata({"oncelog": json.dumps(notice or {"complete": True})})
        self._writer.close()
        self._file.sink.close()

    def written(self) -> Iterator[bytes]:
        return self._file.pieces()

    def _hits(self, fetched: Fetched, states: Mapping[int, str], until: int) -> npt.NDArray[np.int64] | None:
        if not self._selection.record_filter:
            return None
        events = scanned(fetched, self._selection.record_filter, until, states, Outcomes())
        return np.array([event.record.offset for event in events if isinstance(event, Hit)], np.int64)

    def _add(self, rows: pa.RecordBatch, fetched: Fetched, states: Mapping[int, str]) -> None:
        if not self._selection.committed:
            begins = [(header.base_offset, states[at]) for at, header in iter_headers(fetched.records)]
            offsets = np.array([begin for begin, _ in begins], np.int64)
            at = np.searchsorted(offsets, _offsets(rows), side="right") - 1
            names = _text([begins[index][1] for index in at.tolist()])
            rows = pa.RecordBatch.from_arrays([*rows.columns, names], schema=self._schema)
        if self._waiting_bytes + rows.nbytes > _ROW_GROUP_BYTES:
            self._flush()
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if rows.num_rows == 1 and rows.nbytes >= MIB:  # It may be a view that keeps the whole response alive.
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._waiting_bytes = [], 0


def _runs(rows: pa.RecordBatch, hits: npt.NDArray[np.int64] | None) -> Iterator[pa.RecordBatch]:
    """The rows as they are; or, with ``hits``, each run of consecutive rows with these offsets."""
    if hits is None:
        if rows.num_rows:
            yield rows
        return
    is_hit = np.isin(_offsets(rows), hits)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], is_hit, [False]))))
    for first, end in edges.reshape(-1, 2).tolist():
        yield rows.slice(first, end - first)


def _offsets(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    column = rows.column("offset")
    data = column.buffers()[1]
    every = np.frombuffer(b"" if data is None else memoryview(data), np.int64)
    return every[column.offset : column.offset + len(column)]


def _text(texts: list[str]) -> Array:
    """A column of short strings. ``pa.array`` would import pandas to check for its types."""
    data = [text.encode() for text in texts]
    bounds = np.zeros(len(data) + 1, np.int32)
    np.cumsum([len(item) for item in data], out=bounds[1:])
    return pa.Array.from_buffers(
        pa.string(), len(data), [None, pa.py_buffer(bounds.data), pa.py_buffer(b"".join(data))]
    )
