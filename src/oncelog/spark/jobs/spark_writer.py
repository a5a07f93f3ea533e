"""Ranges → Parquet files, by one Spark job: the ``oncelog`` source in, Spark's Parquet writer out.

The rule: a task reads one range and writes one file; the file's number is the task's, which is the range's index.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from oncelog.spark.format.data_source import register
from oncelog.spark.jobs.load_report import LoadRequest
from oncelog.spark.jobs.shape import Shape, bad_rows, good_rows, merged_columns, schema_columns, shaped
from oncelog.spark.json_values.decoding import BAD, OPTION, JsonDecoding
from oncelog.spark.session.errors import SparkSourceError
from oncelog.spark.session.sessions import JobSession, check_shared, known_error
from oncelog.spark.table.directory import Table, TableError
from oncelog.spark.table.parquet_files import files_in, footer_stats, levels, write_common_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Observation, SparkSession
    from pyspark.sql.types import StructType

    from oncelog.spark.jobs.load_plan import Piece

MOST_TASKS: Final = 1 << 31
_PART: Final = re.compile(r"part-(\d+)-.*\.parquet")
_OUR_ERROR: Final = re.compile(r"^oncelog\.[\w.]+: (.+)$", re.MULTILINE)
_SETTINGS: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96, Spark's default, is deprecated elsewhere
    "spark.sql.files.maxRecordsPerFile": "0",
    "spark.sql.session.timeZone": "UTC",  # days of a partitioned table are UTC's
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
}


class LoadFailed(SparkSourceError):
    """A Spark job failed; the text is the reason in one line."""


class SparkWriter:
    """Writes with the job's settings on the given session's Spark, so that no setting of the caller's changes."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        self.job_session = JobSession(spark, _SETTINGS)
        register(self.session)
        self._options = {name: value for name, value in options.items() if name != "subscribe"}
        self.decoding: JsonDecoding | None = None
        """The decoding of JSON values in the tasks that read them."""
        self.parallelism: int = self.job_session.parallelism()

    @property
    def session(self) -> SparkSession:
        """The session that writes."""
        return self.job_session.spark

    def read(self, pieces: Sequence[Piece]) -> DataFrame:
        """The rows of some ranges, a task each."""
        reader = self.session.read.format("oncelog").options(**self._options, **self.decoding_options())
        return reader.option("ranges", ranges_option(pieces)).load()

    def decoding_options(self) -> dict[str, str]:
        """The options of the source by which values are decoded."""
        return {} if self.decoding is None else {OPTION: self.decoding.option()}

    def write(self, pieces: Sequence[Piece], directory: Path) -> dict[int, Path]:
        """Run the job. Raises LoadFailed."""
        return self.write_rows(self.read(pieces), directory, len(pieces))

    def write_rows(self, frame: DataFrame, directory: Path, tasks: int) -> dict[int, Path]:
        """Write a frame of so many tasks; task number → file. Raises LoadFailed, TableError."""
        if self.job_session.is_this_machine():
            self.write_frame(frame, directory)
            return by_task(directory, tasks)
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        seen: Observation = Observation()
        self.write_frame(frame.observe(seen, f.count(f.lit(1)).alias("rows")), directory)
        files = by_task(directory, tasks)
        check_rows(files, int(seen.get["rows"]), directory)
        return files

    def write_frame(self, frame: DataFrame, directory: Path, partition_by: str | None = None) -> None:
        """A file for each task that has rows; for each task and day in a partitioned table. Raises LoadFailed."""
        writer = frame.write.partitionBy(*levels(partition_by)) if partition_by else frame.write
        try:
            with self.job_session.settings():
                writer.parquet(str(directory.absolute()))
        except Exception as error:
            raise one_line_error(error) from error


class ShapedSparkWriter:
    """A writer with the columns and directories of a shape; bad rows are written apart.

    The bad rows are counted in the job that writes the good ones; only where there are any are the ranges read again,
    for them alone. The two counts have to agree.
    """

    def __init__(self, plain: SparkWriter, shape: Shape, known: StructType | None) -> None:
        self._plain, self._shape = plain, shape
        self.parallelism, self.partition_by = plain.parallelism, shape.partition_by
        with plain.job_session.settings():
            self._columns = merged_columns(known, schema_columns(plain.read([]), shape))
            plain.decoding = shape.decoding(self._columns)
            self.schema = self._arrow_schema(good_rows(self.shape(plain.read([])), shape))
        self.new_columns = (
            [] if known is None else [one for one in (self._columns or known).names if one not in known.names]
        )
        self._bad: tuple[Sequence[Piece], int] = ((), 0)

    @property
    def plain(self) -> SparkWriter:
        """The writer that reads ranges, without a shape."""
        return self._plain

    def shape(self, frame: DataFrame) -> DataFrame:
        """The source's rows as the table's, with the reason beside each bad one."""
        return shaped(frame, self._shape, self._columns)

    def write(self, pieces: Sequence[Piece], directory: Path) -> dict[int, Path]:
        """Run the job for the good rows. Raises LoadFailed."""
        files, bad = self.write_good(self._plain.read(pieces), directory, len(pieces))
        self._bad = (pieces, bad)
        return files

    def write_good(self, frame: DataFrame, directory: Path, tasks: int) -> tuple[dict[int, Path], int]:
        """Write the good rows of the source's; task number → file, and the number of bad rows."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        seen: Observation = Observation()
        is_bad = f.col(BAD).isNotNull()
        counted = self.shape(frame).observe(seen, f.count_if(is_bad).alias("bad"), f.count_if(~is_bad).alias("good"))
        self._plain.write_frame(good_rows(counted, self._shape), directory, self.partition_by)
        files = by_task(directory, tasks)
        if not self._plain.job_session.is_this_machine():
            check_rows(files, int(seen.get["good"]), directory)
        return files, int(seen.get["bad"])

    def write_bad(self, pieces: Sequence[Piece], directory: Path) -> dict[int, Path]:
        """The bad rows of the pieces written last. Raises LoadFailed, TableError."""
        if self._bad[0] is not pieces:
            raise TableError("the bad rows of other ranges were counted than are to be written: run the load again")
        return self.write_bad_of(pieces, directory, self._bad[1])

    def write_bad_of(self, pieces: Sequence[Piece], directory: Path, counted: int) -> dict[int, Path]:
        """The bad rows of the pieces, of which there were ``counted``. Raises LoadFailed, TableError."""
        if not counted:
            return {}
        with self._plain.job_session.settings():
            frame = bad_rows(self.shape(self._plain.read(pieces)))
        self._plain.write_frame(frame, directory)
        files = by_task(directory, len(pieces))
        check_bad_count(files, counted)
        return files

    def _arrow_schema(self, frame: DataFrame) -> pa.Schema:
        from pyspark.sql.types import StructType

        from oncelog.spark.session import versions

        outside = levels(self.partition_by) if self.partition_by else ()
        inside = StructType([one for one in frame.schema if one.name not in outside])
        return versions.arrow_schema(inside)

    def record_columns(self, table: Table) -> None:
        """Record the columns in the table, before there are rows with them."""
        if self._columns is None:
            return
        said = json.loads(self._columns.json())
        described = table.describe()
        if described.get("columns") != said:
            table.describe_as({**described, "columns": said})
        write_common_columns(table, self.schema)


def writer_for(spark: SparkSession, request: LoadRequest, table: Table) -> SparkWriter | ShapedSparkWriter:
    """The writer that a request needs."""
    plain = SparkWriter(spark, request.options)
    check_shared(plain.job_session, table.hidden)
    if request.shape.is_plain:
        return plain
    writer = ShapedSparkWriter(plain, request.shape, known_columns(table))
    if request.backfill and writer.new_columns:
        raise TableError(
            f"a backfill adds no columns, and the table has no {', '.join(writer.new_columns)}: stream or load with "
            "this schema first"
        )
    writer.record_columns(table)
    return writer


def known_columns(table: Table) -> StructType | None:
    """The decoded fields that the table has so far; None for a new one."""
    from pyspark.sql.types import StructType

    said = table.describe().get("columns")
    return None if said is None else StructType.fromJson(said)


def by_task(directory: Path, tasks: int) -> dict[int, Path]:
    """Task number → the file it wrote, or a directory with one of its own for each day."""
    found: dict[int, Path] = {}
    for path in files_in(directory):
        match = _PART.fullmatch(path.name)
        if match is None:
            continue
        number, day = int(match[1]), path.parent.relative_to(directory)
        if number >= tasks:
            raise TableError(f"Spark wrote {path.name}, but the job has {tasks} tasks: run it again")
        if day == Path():
            if number in found:
                raise TableError(f"Spark wrote {path.name} and another file in one task, where one is expected")
            found[number] = path
            continue
        found[number] = directory / f"task-{number}"
        own = found[number] / day
        own.mkdir(parents=True)
        path.rename(own / "rows.parquet")
    return found


def check_bad_count(files: Mapping[int, Path], counted: int) -> None:
    """Raise TableError unless the rows found bad the second time are as many as the first time."""
    found = _rows_in(files)
    if found != counted:
        raise TableError(
            f"{counted} rows were bad when they were read first and {found} the second time: "
            "the log changed meanwhile (retention or compaction). Nothing of this step was published; run it again"
        )


def check_rows(files: Mapping[int, Path], counted: int, directory: Path) -> None:
    """Raise TableError unless the rows that Spark's tasks have written are in the files that are here."""
    found = _rows_in(files)
    if found != counted:
        raise TableError(
            f"Spark's tasks wrote {counted} rows, and {found} of them are in {directory} here: every executor needs "
            "the table's directory at the same path as this process. Nothing of this step was published"
        )


def _rows_in(files: Mapping[int, Path]) -> int:
    return sum(footer_stats(file).rows for path in files.values() for file in files_in(path))


def ranges_option(pieces: Sequence[Piece]) -> str:
    """The source's ``ranges`` option for some pieces, in their order."""
    ranges = (piece.wanted for piece in pieces)
    return json.dumps([[one.topic, one.partition, one.start, one.end, one.topic_id] for one in ranges])


def one_line_error(error: Exception) -> SparkSourceError:
    """The error of a Spark job in one line: a task's own message, without the traceback that Spark wraps it in."""
    if isinstance(error, SparkSourceError):
        return error
    ours = _OUR_ERROR.findall(str(error))
    return (None if ours else known_error(error)) or LoadFailed(
        ours[-1] if ours else "Spark: " + (str(error).strip() or repr(error)).splitlines()[0]
    )
