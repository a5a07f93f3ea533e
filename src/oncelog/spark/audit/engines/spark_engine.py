"""Runs the audit on Spark: one task per segment, then shuffles by producer. The driver receives only totals.

Rows of several types share one DataFrame, with a nullable struct per type. Executors read the directories by the
driver's paths.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from oncelog.spark.audit.audit_plan import SegmentTask
from oncelog.spark.audit.model import KINDS, Fact, Finding, Part, SegmentStat, rows_of, schema_of
from oncelog.spark.audit.pipeline import ProgressCallback, Tally, gravest_first, typed_batches
from oncelog.spark.audit.segments.segment_facts import TypedBatch
from oncelog.spark.session.pickling import VersionedPickle

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame, SparkSession

# A Spark task costs about 10 ms, so segments smaller than this share a task.
TASK_BYTES: Final = 64 << 20
# Log bytes per shuffle partition; with transactions of 1 KB they make about 50 MB of facts.
SHUFFLE_BYTES: Final = 256 << 20
_MAX_WIDTH: Final = 8192
_WIDTH_SETTING: Final = "spark.sql.shuffle.partitions"
_TYPES: Final[dict[str, type[Any]]] = {"fact": Fact, "stat": SegmentStat, "part": Part, "finding": Finding}
_NAMES: Final = {row_type: name for name, row_type in _TYPES.items()}
_STRUCTS: Final = {name: pa.struct(list(schema_of(row_type))) for name, row_type in _TYPES.items()}
_MIXED: Final = pa.schema([pa.field(name, struct) for name, struct in _STRUCTS.items()])
_SQL: Final = {pa.string(): "string", pa.int64(): "bigint", pa.bool_(): "boolean", pa.float64(): "double"}
_PLAIN: Final = ("committed", "aborted")
_DISTINCT: Final = ("kind", "topic", "partition", "offset", "producer_id", "epoch")
_EVERY_S: Final = 0.5


class SparkEngine:
    """Implements ``pipeline.Engine``; a handle is a DataFrame of mixed rows."""

    def __init__(self, session: SparkSession, size_bytes: int) -> None:
        """``size_bytes``: the size of all segments, which sets the number of shuffle partitions."""
        self._session = session
        self._persisted: list[DataFrame] = []
        self._width = max(1, min(_MAX_WIDTH, size_bytes // SHUFFLE_BYTES + 1))
        # The session is the caller's; close() restores this setting.
        self._width_before = session.conf.get(_WIDTH_SETTING)
        session.conf.set(_WIDTH_SETTING, str(self._width))

    def close(self) -> None:
        self._session.conf.set(_WIDTH_SETTING, str(self._width_before))
        for frame in self._persisted:
            frame.unpersist()
        self._persisted.clear()

    def map_segments(
        self, tasks: Sequence[SegmentTask], read: Callable[[SegmentTask], Iterator[TypedBatch]]
    ) -> DataFrame:
        assigned = assign_segments(tasks)
        numbers = self._session.range(0, len(assigned), 1, len(assigned))
        return self._map(numbers, _ReadTasks(assigned, read))

    def map_sorted(
        self,
        sources: Sequence[DataFrame],
        row_type: type[Any],
        order: Sequence[str],
        group: int,
        keep: tuple[str, Sequence[int]] | None,
        step: Callable[[Iterator[Any]], Iterator[Any]],
    ) -> DataFrame:
        """Apply ``step`` after a shuffle by the first ``group`` columns of ``order`` and a sort within partitions."""
        rows = self._rows(sources, row_type)
        if keep is not None:
            rows = rows.where(rows[keep[0]].isin([int(value) for value in keep[1]]))
        ordered = rows.repartition(self._width, *[rows[name] for name in order[:group]]).sortWithinPartitions(*order)
        return self._map(ordered, _Step(row_type, step))

    def rows(self, sources: Sequence[DataFrame], row_type: type[Any]) -> Iterator[Any]:
        return rows_of(self._rows(sources, row_type).toArrow().to_batches(), row_type)

    def findings(self, sources: Sequence[DataFrame], limit: int) -> tuple[dict[str, int], list[Finding]]:
        distinct = _distinct(self._rows(sources, Finding)).persist()
        self._persisted.append(distinct)
        kinds = {row["kind"]: int(row["count"]) for row in distinct.groupBy("kind").count().collect()}
        first = distinct.orderBy(_gravity(distinct["kind"]), "topic", "partition", "offset").limit(limit)
        return kinds, gravest_first(rows_of(first.toArrow().to_batches(), Finding))

    def totals(self, parts: DataFrame, buckets: tuple[int, int], limit: int) -> tuple[list[Tally], list[Part]]:
        from pyspark.sql import functions as f

        start, width = buckets
        rows = self._rows([parts], Part)
        when = f.when(rows["ended"] >= 0, rows["ended"]).otherwise(rows["written"])
        tallies = (
            rows.select(f.floor((when - start) / width).alias("bucket"), "fate", "records", "size_bytes")
            .groupBy("bucket", "fate")
            .agg(f.count("*").alias("parts"), f.sum("records").alias("records"), f.sum("size_bytes").alias("size"))
            .orderBy("bucket", "fate")
            .collect()
        )
        unusual = rows.where(~rows["fate"].isin(list(_PLAIN))).limit(limit)
        unusual_parts = list(rows_of(unusual.toArrow().to_batches(), Part))
        return [Tally(*map(_plain, row)) for row in tallies], unusual_parts

    def write(self, sources: Sequence[DataFrame], row_type: type[Any], directory: Path) -> None:
        rows = self._rows(sources, row_type)
        if row_type is Finding:
            # Findings are few; one file is enough.
            rows = _distinct(rows).coalesce(1)
        rows.write.mode("overwrite").option("compression", "zstd").parquet(str(directory.absolute()))

    def _rows(self, sources: Sequence[DataFrame], row_type: type[Any]) -> DataFrame:
        name = _NAMES[row_type]
        frames = [source.where(source[name].isNotNull()).select(f"{name}.*") for source in sources]
        together = frames[0]
        for frame in frames[1:]:
            together = together.unionByName(frame)
        return together

    def _map(
        self, frame: DataFrame, function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    ) -> DataFrame:
        # Map ``frame`` and persist the result, because several steps read it.
        from pyspark import StorageLevel

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # PySpark warns about pandas, which is not used here
            mapped = frame.mapInArrow(function, _ddl_mixed())
        # Executor memory, then disk: facts are read by three steps and are small beside the segments.
        kept = mapped.persist(StorageLevel.MEMORY_AND_DISK)
        self._persisted.append(kept)
        return kept


def assign_segments(tasks: Sequence[SegmentTask]) -> list[tuple[SegmentTask, ...]]:
    assigned: list[tuple[SegmentTask, ...]] = []
    small: list[SegmentTask] = []
    held = 0
    for task in sorted(tasks, key=lambda task: -task.size_bytes):
        if task.size_bytes >= TASK_BYTES:
            assigned.append((task,))
            continue
        small.append(task)
        # Even an empty segment costs a task some time.
        held += task.size_bytes + (1 << 16)
        if held >= TASK_BYTES:
            assigned.append(tuple(small))
            small, held = [], 0
    if small:
        assigned.append(tuple(small))
    return assigned


@dataclass(frozen=True)
class _ReadTasks(VersionedPickle):
    assigned: Sequence[Sequence[SegmentTask]]
    read: Callable[[SegmentTask], Iterator[TypedBatch]]

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_numpy().tolist():
                for task in self.assigned[number]:
                    for row_type, rows in self.read(task):
                        yield mixed(row_type, rows)


@dataclass(frozen=True)
class _Step(VersionedPickle):
    row_type: type[Any]
    step: Callable[[Iterator[Any]], Iterator[Any]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for row_type, rows in typed_batches(self.step(rows_of(batches, self.row_type))):
            yield mixed(row_type, rows)


def mixed(row_type: type[Any], rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of one type as mixed rows: the columns of the other types are null."""
    name = _NAMES[row_type]
    columns = [
        pa.StructArray.from_arrays(rows.columns, fields=list(rows.schema))
        if field.name == name
        else pa.nulls(rows.num_rows, field.type)
        for field in _MIXED
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_MIXED)


def _ddl_mixed() -> str:
    return ", ".join(
        f"{name} struct<{', '.join(f'`{field.name}`: {_SQL[field.type]}' for field in struct)}>"
        for name, struct in _STRUCTS.items()
    )


def _distinct(findings: DataFrame) -> DataFrame:
    # Merge the findings that replicas have in common. The primary's wins: its path is empty and sorts first.
    from pyspark.sql import functions as f

    others = [name for name in Finding._fields if name not in ("path", "text", *_DISTINCT)]
    first = f.min(f.struct("path", "text", *others)).alias("first")
    return findings.groupBy(*_DISTINCT).agg(first).select(*_DISTINCT, "first.*").select(*Finding._fields)


def _gravity(kind: Column) -> Column:
    from pyspark.sql import functions as f

    return f.array_position(f.array(*[f.lit(name) for name in KINDS]), kind)


def _plain(value: Any) -> Any:
    return value if isinstance(value, str) else int(value)


@contextlib.contextmanager
def report_progress(context: SparkContext, report: ProgressCallback) -> Iterator[None]:
    """Report the progress of the running stages while the block runs, at most twice a second and only changes."""
    ended = threading.Event()

    def watch() -> None:
        reported = None
        tracker = context.statusTracker()
        while not ended.wait(_EVERY_S):
            active = [tracker.getStageInfo(stage_id) for stage_id in tracker.getActiveStageIds()]
            running = [stage for stage in active if stage is not None]
            number = max((stage.stageId for stage in running), default=None)
            if number is None:
                continue
            now = sum(stage.numCompletedTasks for stage in running), sum(stage.numTasks for stage in running)
            if (number, now) != reported:
                reported = number, now
                report(f"stage {number} of Spark", *now)

    thread = threading.Thread(target=watch, name="oncelog-audit-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
