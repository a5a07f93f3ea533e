"""Our Spark source with scales in each task: what its Python worker weighs at each stage of reading.

A module of its own that imports next to nothing: all it imports, the worker has in memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from oncelog.spark.format.data_source import OncelogSource
from oncelog.spark.source.batch_reader import OncelogReader

if TYPE_CHECKING:
    import pyarrow as pa

LOG: Final = "ONCELOG_BENCH_MEMORY"
"""Names the file that each task writes its stages to: bytes by stage, as JSON."""
STAGES: Final = ("before it reads", "imported", "Arrow's functions called", "first batch", "most")


class Staged(OncelogSource):
    """As ``format("oncelog")`` in batches, with a look at each stage of a task."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "staged"

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader whose tasks say what they weigh."""
        return _Reader(self._checked(self._parsed().check_batch(), schema))


class _Reader(OncelogReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        resident = [_resident()]
        import oncelog.spark.source.read.range_reader  # noqa: F401 - for what it weighs

        resident.append(_resident())
        _call_arrow()
        resident.append(_resident())
        first = most = 0
        for batch in super().read(partition):
            first = first or _resident()
            yield batch
            del batch  # as the reader does: it would be held while the next one is made
            most = max(most, _resident())
        text = json.dumps(dict(zip(STAGES, [*resident, first, most], strict=True)))
        Path(os.environ[LOG]).write_text(text, encoding="ascii")


def _call_arrow() -> None:
    """Call once, on next to nothing, those of Arrow's functions that reading needs."""
    import numpy as np
    import pyarrow as pa

    from oncelog.records.columns.arrow_arrays import binary_column, number_column
    from oncelog.records.columns.fields import Range
    from oncelog.records.columns.varint_columns import ByteView

    place = np.zeros(1, np.int64)
    binary_column(ByteView(np.zeros(16, np.uint8)), Range(place, np.ones(1, np.int32)))
    number_column(place, pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))


def _resident() -> int:
    for line in Path("/proc/self/smaps_rollup").read_text("ascii").splitlines():
        name, _, rest = line.partition(":")
        if name == "Rss":
            return int(rest.split()[0]) * 1024
    raise RuntimeError("the kernel does not say what is resident")
