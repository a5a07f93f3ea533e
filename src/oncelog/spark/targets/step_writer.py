"""The Spark side of a table's steps: ranges or a batch's rows in, files in the table's place out.

The rule: rows are decoded by Spark's own functions (``shape``) and written where they are, by ``TaskFiles`` in each
task; the driver gets names and checks them against footers that it reads itself.
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
    RESERVED,
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
from oncelog.spark.table.directory import TableError
from oncelog.spark.table.parquet_files import column_statistics, levels, table_schema
from oncelog.spark.targets.table_target import FileStore, NewFile, Spans
from oncelog.spark.targets.task_files import FACTS, TaskFiles, Written, footer_of, written_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_READERS: Final = 8


@dataclass(frozen=True, slots=True)
class Places:
    """The places of a step's files: the table's, the quarantine's, and the offsets whose bad rows that has already."""

    store: FileStore
    bad_store: FileStore | None = None
    skipped_bad: Spans | None = None


class StepWriter(Protocol):
    """The writer of ranges into a table's files: Spark, or a test's."""

    parallelism: int
    schema: pa.Schema
    """The table's columns, without those that directories stand for."""
    bad_schema: pa.Schema | None
    """The quarantine's columns; None if no row can be bad."""
    partition_by: str | None

    def write(self, pieces: Sequence[Piece], places: Places, frame: DataFrame | None = None) -> list[Written]:
        """Write each piece's rows into new files; ``frame`` has the rows, if they are those of a stream's batch."""


class SparkStepWriter:
    """Writes by Spark jobs: a task for each piece, or for each part of a micro-batch."""

    def __init__(self, reader: SparkReader, shape: Shape, known: pa.Schema | None, *, include_headers: bool) -> None:
        self._reader, self._shape = reader, shape
        self.parallelism = reader.parallelism
        self.partition_by: str | None = shape.partition_by
        self.bad_schema: pa.Schema | None = None
        self._columns: StructType | None = None
        if shape.is_plain:
            self.schema = table_schema(include_headers=include_headers)
            return
        outside = levels(shape.partition_by) if shape.partition_by else ()
        with reader.job_session.settings():
            self._columns = merged_columns(_decoded_columns(known, shape), schema_columns(reader.read([]), shape))
            reader.decoding = shape.decoding(self._columns)
            frame = shaped(reader.read([]), shape, self._columns)
            self.schema = arrow_columns(good_rows(frame, shape), outside)
            self.bad_schema = arrow_columns(bad_rows(frame))

    def write(self, pieces: Sequence[Piece], places: Places, frame: DataFrame | None = None) -> list[Written]:
        """See ``StepWriter``. Raises LoadFailed."""
        rows = self._reader.read(pieces) if frame is None else frame
        try:
            with self._reader.job_session.settings():
                return written_of(row.asDict() for row in self._mapped(rows, places).collect())
        except Exception as error:
            raise one_line_error(error) from error

    def _mapped(self, frame: DataFrame, places: Places) -> DataFrame:
        """A frame that writes the rows of another when it is run, and has a row for each file."""
        outside = levels(self.partition_by) if self.partition_by else ()
        files = TaskFiles(places.store, self.schema, outside)
        if not self._shape.is_plain:
            frame = shaped(frame, self._shape, self._columns)
            if outside:
                frame = frame.sortWithinPartitions("topic", "partition", *outside, "offset")
            files = TaskFiles(
                places.store, self.schema, outside, places.bad_store, self.bad_schema, dict(places.skipped_bad or {})
            )
        frame = frame.withColumn("timestamp", in_readable_years("timestamp"))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")  # none is used
            return frame.mapInArrow(files, FACTS)


def _decoded_columns(columns: pa.Schema | None, shape: Shape) -> StructType | None:
    """The decoded fields of an existing table."""
    if columns is None or not shape.decodes_fields:
        return None
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    fields = from_arrow_schema(columns, prefer_timestamp_ntz=True)
    return StructType([one for one in fields if one.name.lower() not in RESERVED])


def check_files(
    written: Sequence[Written], pieces: Sequence[Piece], store_of: Callable[[Written], FileStore]
) -> list[int]:
    """For each file the index of the piece that it belongs to. Raises TableError unless its footer says so, too."""
    with ThreadPoolExecutor(_READERS) as pool:
        footers = list(pool.map(lambda one: _place(store_of(one), one.file), written))
    found = [_piece_of(place, pieces) for place in footers]
    for index, piece in enumerate(pieces):
        rows = sum(one.file.rows for one, at in zip(written, found, strict=True) if at == index)
        if piece.offset_range.max_rows is not None and rows > piece.offset_range.max_rows:
            raise TableError(
                f"{rows} rows were written of {piece.offset_range.size} offsets of {piece.offset_range.topic_partition}"
            )
    return found


def _place(store: FileStore, file: NewFile) -> NewFile:
    """The content of a file by its footer. Raises TableError unless the task has said the same."""
    footer = footer_of(store, file.path)
    groups = [at for at in range(footer.num_row_groups) if footer.row_group(at).num_rows]
    said: dict[str, tuple[Any, Any]] = {}
    for name in ("topic", "partition", "offset"):
        statistics = [column_statistics(footer, at, name, file.path) for at in groups]
        said[name] = min(one.min for one in statistics), max(one.max for one in statistics)
    topic, partition, offset = said["topic"], said["partition"], said["offset"]
    real = file._replace(
        topic=topic[0], partition=partition[0], rows=footer.num_rows, first_offset=offset[0], last_offset=offset[1]
    )
    if real != file or topic[0] != topic[1] or partition[0] != partition[1]:
        raise TableError(f"{file.path} does not hold what the task that wrote it said: run it again")
    return real


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
