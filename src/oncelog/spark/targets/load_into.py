"""Tables of other formats as targets: Spark writes files, one commit of the format adds them *and* the offsets.

The rules: a step's files are written where no reader looks and checked by their footers, as for ``table``; the commit
that adds them carries each partition's next offset, so rows and offsets cannot be apart (``Target.commit``); a load
that dies leaves files that no commit names, which the format's own clean-up removes. Bad rows have a table of the same
format beside it with offsets of its own, committed first; a run that dies between the two skips what it has already.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from oncelog.spark.errors import OptionError
from oncelog.spark.jobs.cluster_log import ClusterLog
from oncelog.spark.jobs.load_job import load, request_for
from oncelog.spark.jobs.load_plan import DEFAULT_ROWS_PER_STEP, Piece, plan_partition, steps_of
from oncelog.spark.jobs.load_report import Event, LoadReport, LoadRequest, report_of
from oncelog.spark.jobs.publication import ShapedWriter
from oncelog.spark.jobs.shape import PLAIN, RESERVED, Shape
from oncelog.spark.source.options import SourceOptions, parse_options
from oncelog.spark.table.directory import RowsFile, TableError, topic_label
from oncelog.spark.table.parquet_files import check_staged, files_in, table_schema
from oncelog.spark.targets.table_target import NewFile, NextOffsets, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS = ("delta", "iceberg")


def load_into(topics: Sequence[str], bootstrap_servers: str, to: str | Path, **arguments: Any) -> LoadReport:
    """Load into a table: ``delta:DIR`` or ``iceberg:DIR``, else as ``load_job.load``. Raises OptionError."""
    kind, separator, path = str(to).partition(":")
    if not separator or kind not in FORMATS:
        return load(topics, bootstrap_servers, to, **arguments)
    if arguments.pop("compact_below", None) is not None:
        raise OptionError(f"compact_below is not for tables in {kind}: compact them with the format's own tools")
    if arguments.pop("backfill", False) or arguments.pop("quarantine_topic", None):
        raise OptionError(f"--backfill and --quarantine-topic are not for tables in {kind}")
    arguments.pop("backfill", None)
    arguments.pop("quarantine_topic", None)
    make = opener(kind)
    return load_target(topics, bootstrap_servers, make(Path(path)), make(Path(f"{path}-quarantine")), **arguments)


def opener(kind: str) -> Callable[[Path], Target]:
    """The function that opens a table of a format. Raises OptionError if its package is missing."""
    try:
        if kind == "delta":
            from oncelog.spark.targets.delta import DeltaTarget

            return DeltaTarget
        from oncelog.spark.targets.iceberg import IcebergTarget

        return IcebergTarget
    except ImportError as error:
        raise OptionError(f"a table in {kind} needs a package: pip install 'oncelog[{kind}]' ({error})") from None


def load_target(
    topics: str | Sequence[str],
    bootstrap_servers: str,
    target: Target,
    quarantine: Target,
    *,
    spark: SparkSession | None = None,
    from_ms: int | None = None,
    rows_per_step: int = DEFAULT_ROWS_PER_STEP,
    options: Mapping[str, str] | None = None,
    shape: Shape = PLAIN,
    on_event: Callable[[Event], None] = lambda event: None,
) -> LoadReport:
    """Load everything new into ``target``, bad rows into ``quarantine``; arguments and errors as for ``load``.

    ``from_ms`` is where a new table begins; rows of one that is there are not replaced.
    """
    request = request_for(topics, bootstrap_servers, target.root, from_ms, rows_per_step, options, shape, None)
    parsed = parse_options(request.options)
    source = ClusterLog(parsed, request)
    source.topic_ids()
    with _locked(target.root), ExitStack() as stack:
        has = target.next_offsets(source.partitions())
        if from_ms is not None and has:
            raise TableError(f"a load from a time needs a new table, and {target.root} has rows already")
        states = source.states(_Ends(has))
        plans = [plan_partition(state, fail_on_data_loss=parsed.fail_on_data_loss) for state in states]
        report = report_of(target.root, states, plans)
        run = _Run(target, quarantine, report, sum(plan.size for plan in plans), on_event, parsed)
        run.report_progress("planned")
        if run.offsets_total or target.columns() is None:
            run.open_writer(_writer(spark, request, target, stack))
            for pieces in steps_of(plans, rows_per_step, run.parallelism):
                run.run_step(pieces)
        return run.finish()


def _writer(spark: SparkSession | None, request: LoadRequest, target: Target, stack: ExitStack) -> Any:
    from oncelog.spark.jobs.spark_writer import ShapedSparkWriter, SparkWriter
    from oncelog.spark.local_session import local_session
    from oncelog.spark.sessions import check_shared

    session = spark or stack.enter_context(local_session(log=target.root / ".oncelog-spark.log"))
    plain = SparkWriter(session, request.options)
    check_shared(plain.job_session, target.root)
    if request.shape.is_plain:
        return plain
    return ShapedSparkWriter(plain, request.shape, _decoded_columns(target.columns(), request.shape))


def _decoded_columns(columns: pa.Schema | None, shape: Shape) -> Any:
    """The decoded fields of an existing table."""
    if columns is None or not shape.decodes_fields:
        return None
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    return StructType(
        [one for one in from_arrow_schema(columns, prefer_timestamp_ntz=True) if one.name.lower() not in RESERVED]
    )


@dataclass(frozen=True, slots=True)
class _Ends:
    """Next offsets in the form of a table directory's files, for ``ClusterLog.states``."""

    ends: NextOffsets

    def files(self) -> dict[tuple[str, int], list[RowsFile]]:
        """A file without rows for each partition, which ends at the next offset."""
        return {(topic_label(p.topic), p.partition): [RowsFile.of(p, end, end)] for p, end in self.ends.items()}


class _Run:
    """A load under way."""

    def __init__(
        self,
        target: Target,
        quarantine: Target,
        report: LoadReport,
        offsets_total: int,
        on_event: Callable[[Event], None],
        options: SourceOptions,
    ) -> None:
        self._target, self._quarantine, self._report = target, quarantine, report
        self.offsets_total, self._done, self._on_event, self._options = offsets_total, 0, on_event, options
        self._started = time.monotonic()

    def report_progress(self, kind: Any) -> None:
        """Report progress to the caller: see ``Publication``."""
        self._on_event(Event(kind, self._report.steps, self._done, self.offsets_total, self._report.rows))

    def open_writer(self, writer: Any) -> None:
        """Take the writer; create the table if it is not there."""
        self._writer = writer
        self.parallelism = writer.parallelism
        shaped = writer if isinstance(writer, ShapedWriter) else None
        plain = table_schema(include_headers=self._options.include_headers)
        self._schema = plain if shaped is None else shaped.schema
        self._partition_by = None if shaped is None else shaped.partition_by
        has = self._target.columns()
        if has is not None and shaped is not None:
            self._report.new_columns = [name for name in self._schema.names if name not in has.names]
        if has is None:
            self._target.commit([], {}, self._schema, self._partition_by)

    def run_step(self, pieces: Sequence[Piece]) -> None:
        """Run one step: write the pieces, check them, and make one commit."""
        directory = self._target.root / "data" / f"{self._report.steps:05d}-{uuid.uuid4().hex}"
        self.report_progress("writing")
        written = self._writer.write(pieces, directory)
        bad = self._writer.write_bad(pieces, _bad_directory(self._quarantine, directory)) if self._has_shape else {}
        self.report_progress("written")
        ends = {piece.wanted.topic_partition: 0 for piece in pieces}
        for piece in pieces:
            ends[piece.wanted.topic_partition] = max(ends[piece.wanted.topic_partition], piece.wanted.end)
        self._keep_bad(pieces, bad, ends)
        files = [(pieces[index], one) for index, path in written.items() for one in _new_files(path, pieces[index])]
        self.report_progress("publishing")
        self._target.commit([file for _, file in files], ends, self._schema, self._partition_by)
        self._count(pieces, files)
        self.report_progress("committed")

    @property
    def _has_shape(self) -> bool:
        return isinstance(self._writer, ShapedWriter)

    def _keep_bad(self, pieces: Sequence[Piece], bad: Mapping[int, Path], ends: NextOffsets) -> None:
        if not bad:
            return
        has = self._quarantine.next_offsets(list(ends))
        files: list[NewFile] = []
        for index, path in bad.items():
            check_staged(path, pieces[index].wanted)
            kept = _drop_committed_rows(path, has.get(pieces[index].wanted.topic_partition, 0))
            self._report.quarantined += kept
            if kept:
                files += _new_files(path, pieces[index])
        schema = pq.read_schema(next(iter(bad.values())))
        self._quarantine.commit(files, {p: max(end, has.get(p, 0)) for p, end in ends.items()}, schema, None)

    def _count(self, pieces: Sequence[Piece], files: Sequence[tuple[Piece, NewFile]]) -> None:
        self._report.steps += 1
        self._report.files += len(files)
        self._report.rows += sum(file.rows for _, file in files)
        self._report.bytes += sum(file.path.stat().st_size for _, file in files)
        self._done += sum(piece.wanted.size for piece in pieces)
        by_partition = {(one.topic, one.partition): one for one in self._report.partitions}
        for piece in pieces:
            mine = by_partition[piece.wanted.topic, piece.wanted.partition]
            mine.end = max(mine.end, piece.wanted.end)
            mine.rows += sum(file.rows for of, file in files if of is piece)

    def finish(self) -> LoadReport:
        """The report."""
        if self._report.quarantined:
            self._report.quarantine = str(self._quarantine.root)
        self._report.finish(time.monotonic() - self._started)
        return self._report


def _bad_directory(quarantine: Target, directory: Path) -> Path:
    return quarantine.root / "data" / directory.name


def _new_files(path: Path, piece: Piece) -> Iterator[NewFile]:
    check_staged(path, piece.wanted)
    for file in files_in(path):
        facts = check_staged(file, piece.wanted)
        names = file.parent.relative_to(path).parts if path.is_dir() else ()
        levels = dict(name.split("=", 1) for name in names)
        if facts.rows:
            yield NewFile(
                file,
                *facts,
                {name: None if value == "__HIVE_DEFAULT_PARTITION__" else value for name, value in levels.items()},
            )


def _drop_committed_rows(path: Path, offset: int) -> int:
    """Remove rows below ``offset``, which a run that died has committed; the number of rows left."""
    rows = pq.read_table(path)
    kept = rows.filter(pc.greater_equal(rows["offset"], pa.scalar(offset, pa.int64())))
    if kept.num_rows != rows.num_rows:
        pq.write_table(kept, path)
    return int(kept.num_rows)


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """An flock, as ``Table`` has it: the formats' own conflict checks are for other writers."""
    root.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(root / ".oncelog-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TableError(f"another load is writing to {root}") from None
        yield
    finally:
        os.close(descriptor)
