"""The Spark side of a table's steps: reads ranges or a batch's rows and writes files to the table's store.

Spark's own functions decode the rows (``shape``), and ``TaskFiles`` writes them in the same task. The driver checks the
files against footers that it reads itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from oncelog.spark.jobs.load_plan import Piece
from oncelog.spark.jobs.shape import (
    Shape,
    arrow_columns,
    bad_rows,
    good_rows,
    in_readable_years,
    merged_columns,
    schema_columns,
    shaped,
)
from oncelog.spark.jobs.spark_reader import SparkReader, one_line_error
from oncelog.spark.json_values.decoding import RESERVED
from oncelog.spark.table.directory import TableError
from oncelog.spark.table.parquet_files import column_statistics, levels, table_schema
from oncelog.spark.targets.table_target import FileStore, NewFile, Spans
from oncelog.spark.targets.task_files import FACTS, TaskFiles, Written, footer_of, written_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_READERS: Final = 8


@dataclass(frozen=True, slots=True)
class StepStores:
    """A step's stores: the table's, the quarantine's, and the offsets whose bad rows that already has."""

    store: FileStore
    bad_store: FileStore | None = None
    skipped_bad: Spans | None = None


class StepWriter(Protocol):
    parallelism: int
    # The table's columns, without those that directories represent.
    schema: pa.Schema
    # The quarantine's columns; None if no row can be bad.
    bad_schema: pa.Schema | None
    partition_by: str | None

    def write(self, pieces: Sequence[Piece], stores: StepStores, frame: DataFrame | None = None) -> list[Written]:
        """Write each piece's rows to new files; ``frame`` has the rows if they are a stream's batch."""


class SparkStepWriter:
    """Writes by Spark jobs: one task per piece, or per part of a micro-batch."""

    def __init__(self, reader: SparkReader, shape: Shape, existing: pa.Schema | None, *, include_headers: bool) -> None:
        self._reader, self._shape = reader, shape
        self.parallelism = reader.parallelism
        self.partition_by: str | None = shape.partition_by
        self.bad_schema: pa.Schema | None = None
        self._columns: StructType | None = None
        if shape.is_plain:
            self.schema = table_schema(include_headers=include_headers)
            return
        partition_columns = levels(shape.partition_by) if shape.partition_by else ()
        with reader.job_session.settings():
            self._columns = merged_columns(_decoded_columns(existing, shape), schema_columns(reader.read([]), shape))
            reader.decoding = shape.decoding(self._columns)
            frame = shaped(reader.read([]), shape, self._columns)
            self.schema = arrow_columns(good_rows(frame, shape), partition_columns)
            self.bad_schema = arrow_columns(bad_rows(frame))

    def write(self, pieces: Sequence[Piece], stores: StepStores, frame: DataFrame | None = None) -> list[Written]:
        """Run the job. Raises LoadFailed."""
        rows = self._reader.read(pieces) if frame is None else frame
        try:
            with self._reader.job_session.settings():
                return written_of(row.asDict() for row in self._mapped(rows, stores).collect())
        except Exception as error:
            raise one_line_error(error) from error

    def _mapped(self, frame: DataFrame, stores: StepStores) -> DataFrame:
        partition_columns = levels(self.partition_by) if self.partition_by else ()
        files = TaskFiles(stores.store, self.schema, partition_columns)
        if not self._shape.is_plain:
            frame = shaped(frame, self._shape, self._columns)
            if partition_columns:
                frame = frame.sortWithinPartitions("topic", "partition", *partition_columns, "offset")
            files = TaskFiles(
                stores.store,
                self.schema,
                partition_columns,
                stores.bad_store,
                self.bad_schema,
                dict(stores.skipped_bad or {}),
            )
        frame = frame.withColumn("timestamp", in_readable_years("timestamp"))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")  # pandas is not used
            return frame.mapInArrow(files, FACTS)


def _decoded_columns(columns: pa.Schema | None, shape: Shape) -> StructType | None:
    if columns is None or not shape.decodes_fields:
        return None
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    fields = from_arrow_schema(columns, prefer_timestamp_ntz=True)
    return StructType([field for field in fields if field.name.lower() not in RESERVED])


def check_files(
    written: Sequence[Written], pieces: Sequence[Piece], store_of: Callable[[Written], FileStore]
) -> list[int]:
    """Return the index of the piece to which each file belongs. Raises TableError unless its footer agrees."""
    # On an object store each footer costs a round trip.
    with ThreadPoolExecutor(_READERS) as pool:
        footers = list(pool.map(lambda file: _place(store_of(file), file.file), written))
    owners = [_piece_of(place, pieces) for place in footers]
    for index, piece in enumerate(pieces):
        rows = sum(file.file.rows for file, owner in zip(written, owners, strict=True) if owner == index)
        if piece.offset_range.max_rows is not None and rows > piece.offset_range.max_rows:
            raise TableError(
                f"{rows} rows were written from {piece.offset_range.size} offsets "
                f"of {piece.offset_range.topic_partition}"
            )
    return owners


def _place(store: FileStore, file: NewFile) -> NewFile:
    """The content of a file according to its footer. Raises TableError if the task reported otherwise."""
    footer = footer_of(store, file.path)
    groups = [group for group in range(footer.num_row_groups) if footer.row_group(group).num_rows]
    bounds: dict[str, tuple[Any, Any]] = {}
    for name in ("topic", "partition", "offset"):
        statistics = [column_statistics(footer, group, name, file.path) for group in groups]
        bounds[name] = min(statistic.min for statistic in statistics), max(statistic.max for statistic in statistics)
    topic, partition, offset = bounds["topic"], bounds["partition"], bounds["offset"]
    actual = file._replace(
        topic=topic[0], partition=partition[0], rows=footer.num_rows, first_offset=offset[0], last_offset=offset[1]
    )
    if actual != file or topic[0] != topic[1] or partition[0] != partition[1]:
        raise TableError(f"{file.path} does not hold what the task that wrote it reported: run it again")
    return actual


def _piece_of(file: NewFile, pieces: Sequence[Piece]) -> int:
    for index, piece in enumerate(pieces):
        offset_range = piece.offset_range
        same = (offset_range.topic, offset_range.partition) == (file.topic, file.partition)
        if same and offset_range.start <= file.first_offset <= file.last_offset < offset_range.end:
            return index
    raise TableError(
        f"Spark wrote offsets {file.first_offset} to {file.last_offset} of {file.topic}-{file.partition}, which this "
        "step does not read: nothing of it was committed; run it again"
    )
