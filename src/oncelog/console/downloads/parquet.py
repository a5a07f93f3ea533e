"""Records as a Parquet file, with the columns of ``oncelog.read_arrow`` and, if everything is asked for, ``state``.

Batches become columns by ``records.columns``, without a Python step a record. A file that does not have everything says
so in its metadata, under the key ``oncelog``. Needs pyarrow and numpy.
"""

from __future__ import annotations

import io
import json
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from oncelog.base.units import MIB
from oncelog.client.machine.positions import Fetched
from oncelog.console.downloads.reading import Left
from oncelog.console.downloads.selection import Selection
from oncelog.console.records.outcomes import Outcomes
from oncelog.console.records.search import Hit, scanned
from oncelog.records.batch import crc_matches, iter_headers
from oncelog.records.columns.decode import Selection as Columns
from oncelog.records.columns.decode import column_schema, decode
from oncelog.records.errors import CorruptBatch

_ROW_GROUP_BYTES: Final = 4 * MIB
_CONTENT: Final = ("key", "value", "headers")
"""Columns of bytes: a dictionary or the least and greatest of large values would be copies of them."""
_STATE: Final = pa.field("state", pa.string())


class _Sent(io.RawIOBase):
    """A file whose bytes are taken away as they come."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._size = 0

    def writable(self) -> bool:
        """True: it is for writing."""
        return True

    def write(self, data: Any, /) -> int:
        """Append."""
        self._pieces.append(bytes(data))
        self._size += len(self._pieces[-1])
        return len(self._pieces[-1])

    def tell(self) -> int:
        """The bytes so far."""
        return self._size

    def pieces(self) -> Iterator[bytes]:
        """The bytes since the last time."""
        pieces, self._pieces = self._pieces, deque()
        while pieces:
            yield pieces.popleft()


class ParquetFile:
    """A Parquet file, as far as it is not sent yet; row groups of about 4 MiB."""

    takes_turns = True

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        schema = column_schema(include_headers=True)
        self._schema = schema if selection.committed else schema.append(_STATE)
        self._file = _Sent()
        self._pool = pa.system_memory_pool()  # It gives back what is free; the others keep it.
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._file, "w"),
            self._schema,
            compression="zstd",
            use_dictionary=[name for name in self._schema.names if name not in _CONTENT],  # type: ignore[arg-type]  # or names
            write_statistics=[name for name in self._schema.names if name not in _CONTENT],
            memory_pool=self._pool,
        )
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0

    def take(self, fetched: Fetched, states: Mapping[int, str], until: int, left: Left) -> Generator[bytes, None, int]:
        """The row groups that an answer makes whole. Raises CorruptBatch: columns are read together, or not at all."""
        topic, partition = fetched.partition
        for at, header in iter_headers(fetched.records):
            if not crc_matches(fetched.records, at, header):
                raise CorruptBatch(f"{fetched.partition}: the checksum of the batch at {header.base_offset} is wrong")
        columns = Columns(topic, partition, fetched.position, until, self._selection.committed, include_headers=True)
        hits = self._hits(fetched, until)
        for piece in decode(fetched.records, columns, fetched.aborted if self._selection.committed else ()):
            rows, next_offset = self._of_hits(piece.rows, hits), piece.next_offset
            if rows.num_rows > left.records:
                next_offset = rows.column("offset")[left.records].as_py()
                rows = rows.slice(0, left.records)
            if rows.num_rows:
                left.take(rows.num_rows, rows.nbytes)
                self._add(rows, fetched, states)
            del rows, piece
            yield from self._file.pieces()
            if left.is_full():
                return min(next_offset, until)
        return min(fetched.next_offset, until)

    def end(self, notice: Mapping[str, Any] | None) -> bytes:
        """The last row group and the footer."""
        self._flush()
        self._writer.add_key_value_metadata({"oncelog": json.dumps(notice or {"complete": True})})
        self._writer.close()
        return b"".join(self._file.pieces())

    def _hits(self, fetched: Fetched, until: int) -> pa.Array[Any] | None:
        """The offsets of the records that have what is looked for."""
        wanted = self._selection.wanted
        if wanted is None:
            return None
        found = scanned(fetched, wanted, until, True, Outcomes())
        return pa.array([one.record.offset for one in found if isinstance(one, Hit)], pa.int64())

    def _of_hits(self, rows: pa.RecordBatch, hits: pa.Array[Any] | None) -> pa.RecordBatch:
        return rows if hits is None else rows.filter(pc.is_in(rows.column("offset"), value_set=hits))

    def _add(self, rows: pa.RecordBatch, fetched: Fetched, states: Mapping[int, str]) -> None:
        if not self._selection.committed:
            begins = [(header.base_offset, states[at]) for at, header in iter_headers(fetched.records)]
            offsets = np.array([begin for begin, _ in begins], np.int64)
            at = np.searchsorted(offsets, rows.column("offset").to_numpy(), side="right") - 1
            names = pa.array(np.array([state for _, state in begins], object)[at], pa.string())
            rows = pa.RecordBatch.from_arrays([*rows.columns, names], schema=self._schema)
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._waiting_bytes = [], 0
