"""The audit on Spark: a task a segment, then shuffles by producer; nothing but totals comes to the driver.

Rows of several types travel in one DataFrame, a nullable struct a type. Facts are kept (memory, then disk of the
executors) because three steps read them; they are small beside the segments. Executors read the directories by the same
paths as the driver: a shared file system, or ``local[*]``.

Segments are assigned to tasks, largest first; those of a few MB share tasks, since a task costs Spark about 10 ms.

Progress is the number of tasks done of those of the stages that run now, asked of the status tracker twice a second.
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
from oncelog.spark.audit.pipeline import Tally, Tell, gravest_first, typed_batches
from oncelog.spark.audit.segments.segment_facts import Typed
from oncelog.spark.session.pickling import Shipped

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame, SparkSession

TASK_BYTES: Final = 64 << 20
"""Segments smaller than this share a task."""
SHUFFLE_BYTES: Final = 256 << 20
"""Bytes of log for each partition of a shuffle; with transactions of 1 KB they make some 50 MB of facts."""
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
        """``size_bytes``: of all segments; it decides how finely the shuffles are cut."""
        self._session = session
        self._persisted: list[DataFrame] = []
        self._width = max(1, min(_MAX_WIDTH, size_bytes // SHUFFLE_BYTES + 1))
        self._width_before = session.conf.get(_WIDTH_SETTING)
        session.conf.set(_WIDTH_SETTING, str(self._width))

    def close(self) -> None:
        """Unpersist all frames, and restore the session's setting."""
        self._session.conf.set(_WIDTH_SETTING, str(self._width_before))
        for frame in self._persisted:
            frame.unpersist()
        self._persisted.clear()

    def map_segments(self, tasks: Sequence[SegmentTask], read: Callable[[SegmentTask], Iterator[Typed]]) -> DataFrame:
        """Read the segments, one or a few in a Spark task."""
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
        """Run ``step`` after a shuffle by the first columns of ``order`` and a sort within."""
        rows = self._rows(sources, row_type)
        if keep is not None:
            rows = rows.where(rows[keep[0]].isin([int(one) for one in keep[1]]))
        ordered = rows.repartition(self._width, *[rows[name] for name in order[:group]]).sortWithinPartitions(*order)
        return self._map(ordered, _Step(row_type, step))

    def rows(self, sources: Sequence[DataFrame], row_type: type[Any]) -> Iterator[Any]:
        """The rows of a type, collected to the driver: for totals."""
        return rows_of(self._rows(sources, row_type).toArrow().to_batches(), row_type)

    def findings(self, sources: Sequence[DataFrame], limit: int) -> tuple[dict[str, int], list[Finding]]:
        """Distinct findings: the number of each kind, and the gravest."""
        distinct = _distinct(self._rows(sources, Finding)).persist()
        self._persisted.append(distinct)
        kinds = {row["kind"]: int(row["count"]) for row in distinct.groupBy("kind").count().collect()}
        first = distinct.orderBy(_gravity(distinct["kind"]), "topic", "partition", "offset").limit(limit)
        return kinds, gravest_first(rows_of(first.toArrow().to_batches(), Finding))

    def totals(self, parts: DataFrame, buckets: tuple[int, int], limit: int) -> tuple[list[Tally], list[Part]]:
        """Numbers by fate and time, and the first unusual transactions."""
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
        found = list(rows_of(unusual.toArrow().to_batches(), Part))
        return [Tally(*map(_plain, row)) for row in tallies], found

    def write(self, sources: Sequence[DataFrame], row_type: type[Any], directory: Path) -> None:
        """Write a Parquet file for each Spark partition that has rows."""
        rows = self._rows(sources, row_type)
        if row_type is Finding:
            rows = _distinct(rows).coalesce(1)
        rows.write.mode("overwrite").option("compression", "zstd").parquet(str(directory.absolute()))

    def _rows(self, sources: Sequence[DataFrame], row_type: type[Any]) -> DataFrame:
        name = _NAMES[row_type]
        found = [source.where(source[name].isNotNull()).select(f"{name}.*") for source in sources]
        together = found[0]
        for one in found[1:]:
            together = together.unionByName(one)
        return together

    def _map(
        self, frame: DataFrame, function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    ) -> DataFrame:
        """``frame`` mapped, and persisted: several steps read it."""
        from pyspark import StorageLevel

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # PySpark's, about pandas, which is not used here
            mapped = frame.mapInArrow(function, _ddl_mixed())
        kept = mapped.persist(StorageLevel.MEMORY_AND_DISK)
        self._persisted.append(kept)
        return kept


def assign_segments(tasks: Sequence[SegmentTask]) -> list[tuple[SegmentTask, ...]]:
    """Segments → Spark tasks, the largest first."""
    assigned: list[tuple[SegmentTask, ...]] = []
    small: list[SegmentTask] = []
    held = 0
    for task in sorted(tasks, key=lambda one: -one.size_bytes):
        if task.size_bytes >= TASK_BYTES:
            assigned.append((task,))
            continue
        small.append(task)
        held += task.size_bytes + (1 << 16)
        if held >= TASK_BYTES:
            assigned.append(tuple(small))
            small, held = [], 0
    if small:
        assigned.append(tuple(small))
    return assigned


@dataclass(frozen=True)
class _ReadTasks(Shipped):
    """Spark task number → rows."""

    assigned: Sequence[Sequence[SegmentTask]]
    read: Callable[[SegmentTask], Iterator[Typed]]

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_numpy().tolist():
                for task in self.assigned[number]:
                    for row_type, rows in self.read(task):
                        yield mixed(row_type, rows)


@dataclass(frozen=True)
class _Step(Shipped):
    """A step over sorted rows of one type, as Spark maps over Arrow batches."""

    row_type: type[Any]
    step: Callable[[Iterator[Any]], Iterator[Any]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for row_type, rows in typed_batches(self.step(rows_of(batches, self.row_type))):
            yield mixed(row_type, rows)


def mixed(row_type: type[Any], rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of one type among columns for all."""
    name = _NAMES[row_type]
    columns = [
        pa.StructArray.from_arrays(rows.columns, fields=list(rows.schema))
        if field.name == name
        else pa.nulls(rows.num_rows, field.type)
        for field in _MIXED
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_MIXED)


def _ddl_mixed() -> str:
    """The mixed schema as Spark writes it."""
    return ", ".join(
        f"{name} struct<{', '.join(f'`{field.name}`: {_SQL[field.type]}' for field in struct)}>"
        for name, struct in _STRUCTS.items()
    )


def _distinct(findings: DataFrame) -> DataFrame:
    """Distinct findings: one of those that replicas have in common, the primary's if it is there (its path is
    empty)."""
    from pyspark.sql import functions as f

    others = [name for name in Finding._fields if name not in ("path", "text", *_DISTINCT)]
    first = f.min(f.struct("path", "text", *others)).alias("first")
    return findings.groupBy(*_DISTINCT).agg(first).select(*_DISTINCT, "first.*").select(*Finding._fields)


def _gravity(kind: Column) -> Column:
    from pyspark.sql import functions as f

    return f.array_position(f.array(*[f.lit(one) for one in KINDS]), kind)


def _plain(value: Any) -> Any:
    return value if isinstance(value, str) else int(value)


@contextlib.contextmanager
def watched(context: SparkContext, tell: Tell) -> Iterator[None]:
    """Tell how far the stages are while the block runs; what is as it was is not told again."""
    ended = threading.Event()

    def watch() -> None:
        told = None
        tracker = context.statusTracker()
        while not ended.wait(_EVERY_S):
            stages = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
            found = [one for one in stages if one is not None]
            number = max((one.stageId for one in found), default=None)
            if number is None:
                continue
            now = sum(one.numCompletedTasks for one in found), sum(one.numTasks for one in found)
            if (number, now) != told:
                told = number, now
                tell(f"stage {number} of Spark", *now)

    thread = threading.Thread(target=watch, name="oncelog-audit-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
