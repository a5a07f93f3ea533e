"""What mode ``ledger`` remembers of a task's rows, and how a task that comes again is compared with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from crc32c import crc32c

from oncelog.client.machine.offsets import Committed
from oncelog.spark.sink.errors import Behind, SinkError
from oncelog.spark.sink.options import SinkOptions
from oncelog.spark.sink.register import Attempt

_MASK: Final = (1 << 64) - 1
_ODD: Final = 0x9E3779B97F4A7C15


class Digest:
    """Row count and a checksum of keys and values that does not depend on their order."""

    def __init__(self) -> None:
        self.rows = 0
        self.checksum = 0

    def add(self, table: pa.Table) -> None:
        """Take in some rows."""
        columns: dict[str, Any] = {name.lower(): table.column(name) for name in table.column_names}
        values = columns["value"].cast(pa.binary()).to_pylist()
        keys = columns["key"].cast(pa.binary()).to_pylist() if "key" in columns else [None] * len(values)
        total = 0
        for key, value in zip(keys, values, strict=True):
            crc = crc32c(value or b"", crc32c(key or b"", len(key) + 1 if key is not None else 0))
            total += (crc + (value is not None)) * (_ODD + 2 * len(value or b""))
        self.rows += len(values)
        self.checksum = (self.checksum + total) & _MASK

    def of(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The tables as they are, taken in."""
        for table in tables:
            self.add(table)
            yield table

    def __str__(self) -> str:
        return f"rows={self.rows} checksum={self.checksum:016x}"


def compare(known: Committed, options: SinkOptions, attempt: Attempt, partition: str, digest: Digest) -> None:
    """Raise SinkError unless a task has the rows that the ledger says were written."""
    if options.accept_loss is not None and options.accept_loss >= known.offset:
        return
    if known.offset > attempt.epoch:
        raise Behind(attempt.query, attempt.epoch, known.offset)
    if known.metadata != str(digest):
        raise SinkError(
            f"epoch {attempt.epoch}, task {partition}: {known.metadata} were written before, now it has {digest}. The "
            "plan gives other rows (or another number of tasks) when it runs again; without two-phase commit that "
            f"cannot be mended. acceptLoss={attempt.epoch} goes on with what was written"
        )
