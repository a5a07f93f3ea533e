"""The digest of a task's rows that mode ``ledger`` stores, and its comparison when the task runs again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from oncelog.client.machine.offsets import Committed
from oncelog.records.checksum import crc32c
from oncelog.records.columns.binary_views import field_of
from oncelog.spark.session.errors import SinkError
from oncelog.spark.sink.options import SinkOptions
from oncelog.spark.sink.two_phase.errors import Behind
from oncelog.spark.sink.two_phase.register import Attempt

_RECORDED: Final = re.compile(r"rows=[0-9]+ checksum=[0-9a-f]{16}")
_MASK: Final = (1 << 64) - 1
_LARGE: Final = 300
_NO_VALUE: Final = 0x9E3779B97F4A7C15
_NO_KEY: Final = 0xC2B2AE3D27D4EB4F


class Digest:
    """A row count and a checksum that do not depend on the order of rows: the sum of their CRCs, each of the key
    continued over the value."""

    def __init__(self) -> None:
        self.rows = 0
        self.checksum = 0

    def add(self, table: pa.Table) -> None:
        columns: dict[str, Any] = {name.lower(): table.column(name) for name in table.column_names}
        values, total = _bytes_of(columns["value"], _NO_VALUE)
        if "key" in columns:
            # map() keeps the loop over the rows out of Python's byte code.
            keys, nulls = _bytes_of(columns["key"], _NO_KEY)
            total += nulls + sum(map(crc32c, values, map(crc32c, keys)))
        else:
            total += _NO_KEY * len(values) + sum(map(crc32c, values))
        self.rows += len(values)
        self.checksum = (self.checksum + total) & _MASK

    def of(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield the tables unchanged, and add each to the digest."""
        for table in tables:
            self.add(table)
            yield table

    def __str__(self) -> str:
        return f"rows={self.rows} checksum={self.checksum:016x}"


def _bytes_of(column: Any, null: int) -> tuple[Sequence[bytes | memoryview], int]:
    # The values (null as empty), and what nulls add to the checksum. Large values are not copied.
    array: Any = column.combine_chunks()
    array = (array.chunk(0) if isinstance(array, pa.ChunkedArray) else array).cast(pa.binary())
    added = array.null_count * null
    # Small values are cheaper to copy than to slice.
    if array.nbytes < _LARGE * len(array):
        return (array.fill_null(b"") if added else array).to_pylist(), added
    field = field_of(array)
    data, starts = memoryview(field.data), field.starts
    ends = (starts + field.sizes).tolist()
    return [data[start:end] for start, end in zip(starts.tolist(), ends, strict=True)], added


def compare(recorded: Committed, options: SinkOptions, attempt: Attempt, partition: str, digest: Digest) -> None:
    """Raise SinkError unless the task's rows are those that the ledger recorded."""
    if options.accept_loss is not None and options.accept_loss >= recorded.offset:
        return
    if recorded.offset > attempt.epoch:
        raise Behind(attempt.query, attempt.epoch, recorded.offset)
    if not _RECORDED.fullmatch(recorded.metadata):
        raise SinkError(
            f"epoch {attempt.epoch}, task {partition}: the ledger has {recorded.metadata!r}, which this version of "
            "oncelog cannot read: continue the query with the version that wrote it"
        )
    if recorded.metadata != str(digest):
        raise SinkError(
            f"epoch {attempt.epoch}, task {partition}: {recorded.metadata} were written before, but the task now has "
            f"{digest}. The plan produces other rows (or another number of tasks) when it runs again, which cannot be "
            f"repaired without two-phase commit. acceptLoss={attempt.epoch} keeps the rows that were written"
        )
