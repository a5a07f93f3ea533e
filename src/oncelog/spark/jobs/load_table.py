"""The port to a table that loads and streams write: a directory of Parquet files, or a table of another format.

1. A process locks the table (``lock``) while it uses it. Without locks in the file system, commits reject the second
   writer.
2. A step's rows and its end offsets become visible together, or not at all.
3. ``files`` reads only visible rows, so it is the only checkpoint of loads and streams alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from oncelog.base.ids import TopicPartition
from oncelog.spark.jobs.load_plan import PartitionState, Piece, StepKind
from oncelog.spark.jobs.load_report import Progress
from oncelog.spark.table.directory import Role, RowsFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from oncelog.spark.jobs.spark_reader import SparkReader


class TableFiles(Protocol):
    def files(self, partitions: Sequence[TopicPartition]) -> dict[tuple[str, int], list[RowsFile]]:
        """Return the visible files, as in ``LoadTable``."""


class Source(Protocol):
    def states(self, table: TableFiles) -> list[PartitionState]:
        """Current files, log start, log end and topic id of every partition."""

    def topic_ids(self) -> dict[str, str]:
        """Topic → id, or "" if the cluster has none."""


class StepWriter(Protocol):
    """Writes a step's rows: Spark, or a test double. Each kind of table has its own."""

    parallelism: int


Writer = TypeVar("Writer", bound=StepWriter)


class LoadTable(Protocol[Writer]):
    @property
    def name(self) -> str:
        """The table's place, for messages."""

    @property
    def whole_files(self) -> bool:
        """True if rows are replaced file by file, each with its old offsets."""

    @property
    def spark_log(self) -> Path:
        """The file for the output of a session started for a job."""

    @property
    def quarantine(self) -> str:
        """The place of bad rows, for messages."""

    def lock(self, role: Role = "append") -> AbstractContextManager[None]:
        """Lock the table in a role. Raises TableBusy, and TableError for a place that cannot hold such a table."""

    def describe(self) -> dict[str, Any]:
        """Settings and topic ids, which never change for a table; empty for a new one."""

    def set_description(self, description: Mapping[str, Any]) -> None:
        """Replace the description atomically and durably."""

    def drop_unused_description(self) -> None:
        """Remove the description left by a run that published nothing: its settings bind no later run."""

    def files(self, partitions: Sequence[TopicPartition]) -> dict[tuple[str, int], list[RowsFile]]:
        """The visible files by (topic label, partition), in offset order; or one file for each partition's span."""

    def needs_columns(self) -> bool:
        """True for a new table whose columns only a writer knows."""

    def writer(self, reader: SparkReader) -> Writer:
        """Make the writer for a reader's rows. Raises TableError, LoadFailed."""

    def new_columns(self, writer: Writer) -> list[str]:
        """The writer's columns that the table lacks; none for a new table."""

    def prepare(self, writer: Writer) -> None:
        """Add the writer's columns to the table, before any rows have them."""

    def begin(self, progress: Progress) -> None:
        """Begin a run whose steps are counted in ``progress``."""

    def run_step(self, kind: StepKind, pieces: Sequence[Piece], writer: Writer, frame: DataFrame | None = None) -> None:
        """Write the rows of all pieces, or of ``frame`` (a streaming query's batch), check them, and make them
        visible."""

    def record_start_offsets(self, begins: Mapping[TopicPartition, int], writer: Writer) -> None:
        """Record the first offsets of partitions that the table does not have yet, without rows."""

    def publish_empty(self, partition: TopicPartition, offset: int, writer: Writer | None) -> None:
        """Make an empty table readable: it has columns and begins at an offset of a partition."""

    def compact(self, target_bytes: int) -> int:
        """Merge small files into larger ones. Returns how many were merged. Raises TableBusy."""
