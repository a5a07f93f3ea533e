"""The port to a table that loads and streams write into: a directory of Parquet files, or a table of another format.

Rules:
  1. a process holds the table (``held``) while it uses it; where a file system cannot hold one, commits refuse the
     second writer;
  2. a step's rows and the offsets that they end at become visible together, or not at all;
  3. ``files`` answers from what is visible, so it is the only checkpoint of loads and streams alike.
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
    """A table, seen as the files that say where each partition goes on."""

    def files(self, partitions: Sequence[TopicPartition]) -> dict[tuple[str, int], list[RowsFile]]:
        """See ``LoadTable``."""


class Source(Protocol):
    """The log that a load reads: a cluster's, or one in memory."""

    def states(self, table: TableFiles) -> list[PartitionState]:
        """Files, log start, log end and topic id of every partition, as they are now."""

    def topic_ids(self) -> dict[str, str]:
        """Topic → id, "" where the cluster has none."""


class StepWriter(Protocol):
    """The writer of a step's rows: Spark, or a test's. Each kind of table has its own."""

    parallelism: int


Writer = TypeVar("Writer", bound=StepWriter)


class LoadTable(Protocol[Writer]):
    """A table of some kind."""

    @property
    def name(self) -> str:
        """The table's place, for people."""

    @property
    def whole_files(self) -> bool:
        """True if rows are replaced file by file, each with the offsets that it had."""

    @property
    def spark_log(self) -> Path:
        """The file for the output of a session that is started for a job."""

    @property
    def quarantine(self) -> str:
        """The place of bad rows, for people."""

    def held(self, role: Role = "append") -> AbstractContextManager[None]:
        """Hold the table in a role. Raises TableBusy; TableError for a place that is no such table's."""

    def describe(self) -> dict[str, Any]:
        """Settings and topic ids, which stay the same for the table's life; empty for a new one."""

    def describe_as(self, description: Mapping[str, Any]) -> None:
        """Replace the description as a whole, durably."""

    def forget_unused_description(self) -> None:
        """Remove the description that a run left which published nothing: its settings bind no later run."""

    def files(self, partitions: Sequence[TopicPartition]) -> dict[tuple[str, int], list[RowsFile]]:
        """The visible files by (topic label, partition), in offset order; or one file for each partition's span."""

    def lacks_columns(self) -> bool:
        """True for a new table whose columns only a writer knows."""

    def writer(self, reader: SparkReader) -> Writer:
        """The writer of what is read. Raises TableError, LoadFailed."""

    def new_columns(self, writer: Writer) -> list[str]:
        """The writer's columns that the table lacks; of a new table none is new."""

    def prepare(self, writer: Writer) -> None:
        """Give the table the writer's columns, before there are rows with them."""

    def begin(self, progress: Progress) -> None:
        """Begin a run, whose steps are counted in ``progress``."""

    def run_step(self, kind: StepKind, pieces: Sequence[Piece], writer: Writer, frame: DataFrame | None = None) -> None:
        """Write the rows of all pieces, check them, and make them visible.

        ``frame`` has the rows, if they are those of a streaming query's batch."""

    def record_begins(self, begins: Mapping[TopicPartition, int], writer: Writer) -> None:
        """Record where partitions begin of which the table has nothing, without rows."""

    def publish_nothing(self, partition: TopicPartition, offset: int, writer: Writer | None) -> None:
        """Make a table without rows readable, if it is not: it has columns and begins at an offset of a partition."""

    def compact(self, target_bytes: int) -> int:
        """Make larger files of small ones; how many there were. Raises TableBusy."""
