"""The digest of a task's rows that mode ``ledger`` keeps, and its comparison with the task when it runs again."""

from __future__ import annotations

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

_MASK: Final = (1 << 64) - 1
_LARGE: Final = 300
_NO_VALUE: Final = 0x9E3779B97F4A7C15
_NO_KEY: Final = 0xC2B2AE3D27D4EB4F


class Digest:
    """Row count and a checksum of keys and values that does not depend on their order.

    The sum of the rows' CRCs, the key's going into the value's; almost nothing of Python's runs for a row.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.checksum = 0

    def add(self, table: pa.Table) -> None:
        """Add the rows of a table."""
        columns: dict[str, Any] = {name.lower(): table.column(name) for name in table.column_names}
        values, total = _bytes_of(columns["value"], _NO_VALUE)
        if "key" in columns:
            keys, nulls = _bytes_of(columns["key"], _NO_KEY)
            total += nulls + sum(map(crc32c, values, map(crc32c, keys)))
        else:
            total += _NO_KEY * len(values) + sum(map(crc32c, values))
        self.rows += len(values)
        self.checksum = (self.checksum + total) & _MASK

    def of(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The tables unchanged, each added to the digest."""
        for table in tables:
            self.add(table)
            yield table

    def __str__(self) -> str:
        return f"rows={self.rows} checksum={self.checksum:016x}"


def _bytes_of(column: Any, null: int) -> tuple[Sequence[bytes | memoryview], int]:
    """The values, empty for null; and what the nulls add. Large ones are not copied."""
    one: Any = column.combine_chunks()
    one = (one.chunk(0) if isinstance(one, pa.ChunkedArray) else one).cast(pa.binary())
    added = one.null_count * null
    if one.nbytes < _LARGE * len(one):
        return (one.fill_null(b"") if added else one).to_pylist(), added
    field = field_of(one)
    data, starts = memoryview(field.data), field.starts
    ends = (starts + field.sizes).tolist()
    return [data[start:end] for start, end in zip(starts.tolist(), ends, strict=True)], added


def compare(known: Committed, options: SinkOptions, attempt: Attempt, partition: str, digest: Digest) -> None:
    """Raise SinkError unless a task has the rows that the ledger has as written."""
    if options.accept_loss is not None and options.accept_loss >= known.offset:
        return
    if known.offset > attempt.epoch:
        raise Behind(attempt.query, attempt.epoch, known.offset)
    if known.metadata != str(digest):
        raise SinkError(
            f"epoch {attempt.epoch}, task {partition}: {known.metadata} were written before, now it has {digest}. The "
            "plan gives other rows (or another number of tasks) when it runs again; without two-phase commit that "
            f"cannot be repaired. acceptLoss={attempt.epoch} goes on with the rows that were written"
        )
