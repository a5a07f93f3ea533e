"""``oncelog export``: sends a table's rows to a topic, exactly once, through the sink.

A job's offsets are durable under its job id before any row is sent, and the sink skips a job that was decided.
Compaction does not change the rows at given offsets, so a job that runs again sends the same rows or none. Sent rows
are recorded as offset ranges, because a backfill may add rows below them. One task sends the rows of a partition, in
offset order.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from oncelog.base.ids import uuid_text
from oncelog.records.batch import NO_TIMESTAMP
from oncelog.spark.json_values.decoding import OTHER_FIELDS
from oncelog.spark.session.errors import OptionError
from oncelog.spark.table.atomic_swap import fsync
from oncelog.spark.table.directory import Table, TableError, existing_table, topic_label
from oncelog.spark.table.rename_journal import FORMAT, check_format

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField

Span = tuple[int, int]
# ``<topic label>-<partition>`` → disjoint spans (start, exclusive end) in rising order.
Spans = dict[str, list[Span]]
_SOURCE_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
_SETTINGS: Final = {
    "spark.sql.adaptive.enabled": "false",  # a job that runs again must have the same tasks
    "spark.sql.session.timeZone": "UTC",
}
# More spans than these are joined with the rows instead of becoming a filter.
MAX_CONDITIONS: Final = 100
_JSON_OPTIONS: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",  # Spark's default drops microseconds
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_ADDED_COLUMNS: Final = (OTHER_FIELDS, "event_time", "day", "hour", "offsets")


@dataclass(frozen=True, slots=True)
class ExportReport:
    """Totals of an export. ``resumed``: an earlier run began this job."""

    directory: str
    topic: str
    rows: int = 0
    job: str | None = None
    resumed: bool = False
    seconds: float = 0.0
    rows_per_second: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def export(
    directory: str | Path,
    topic: str,
    bootstrap_servers: str,
    *,
    spark: SparkSession | None = None,
    keep_partitions: bool = False,
    options: Mapping[str, str] | None = None,
) -> ExportReport:
    """Send every row of a table that was not sent yet. Columns of decoded values become JSON.

    ``options`` are the sink's (``kafka.*``, ``exactlyOnce``). ``keep_partitions`` sends each row to the number of the
    partition it came from; otherwise the key decides. Raises SparkSourceError and ClientError with one-line messages.
    """
    if str(directory).startswith(("delta:", "iceberg:")):
        raise TableError(
            f"{directory} cannot be exported: `oncelog export` reads directories of Parquet files only. Read a Delta "
            "or Iceberg table with Spark, and write it to a topic with format('oncelog')"
        )
    path, started = existing_table(directory), time.monotonic()
    given = {**(options or {}), "kafka.bootstrap.servers": bootstrap_servers, "topic": topic}
    with Table.open(path, role="fill") as table, ExitStack() as stack:
        progress = _Progress(table, _identity(given, topic))
        resumed = progress.job is not None
        if progress.job is None and not progress.begin(_visible(table)):
            return ExportReport(str(path), topic)
        from oncelog.spark.jobs.spark_reader import one_line_error
        from oncelog.spark.session.local_session import local_session

        session = spark or stack.enter_context(local_session(log=path / "_oncelog" / "spark.log"))
        try:
            rows = _send(session, path, progress, given, keep_partitions=keep_partitions)
        except Exception as error:
            raise one_line_error(error) from error
        job = progress.finish()
    seconds = time.monotonic() - started
    return ExportReport(str(path), topic, rows, job, resumed, round(seconds, 3), round(rows / seconds, 1))


def _identity(options: Mapping[str, str], topic: str) -> str:
    """The topic's name with its id and its cluster's. A missing topic is created if the brokers allow it."""
    from oncelog.spark.sink.options import parse_sink_options
    from oncelog.spark.sink.sink_client import open_client

    with open_client(parse_sink_options(options)) as client:
        topic_info = client.topic(topic, create=True)
        cluster = client.view.cluster_id or ""
    return f"{topic_label(topic)}@{uuid_text(topic_info.topic_id)}@{cluster}"


def _send(
    session: SparkSession, path: Path, progress: _Progress, options: Mapping[str, str], *, keep_partitions: bool
) -> int:
    from oncelog.spark.format.data_source import register
    from oncelog.spark.session.sessions import JobSession, check_shared

    job = JobSession(session, _SETTINGS)
    register(job.spark)
    check_shared(job, path / "_oncelog")
    with job.settings():
        selected = _select_rows(job.spark.read.parquet(str(path.absolute())), progress)
        # Before the write: what was sent is recorded by offsets, not by rows.
        rows = selected.count()
        ordered = selected.repartition(max(1, len(progress.sending)), "topic", "partition").sortWithinPartitions(
            "topic", "partition", "offset"
        )
        frame = records(ordered, keep_partitions=keep_partitions)
        frame.write.format("oncelog").options(**options).option("jobId", progress.job).mode("append").save()
    return int(rows)


def _select_rows(frame: DataFrame, progress: _Progress) -> DataFrame:
    from pyspark.sql import functions as f

    if sum(len(spans) for _, _, spans in progress.sending) > MAX_CONDITIONS:
        rows = [(topic, number, *span) for topic, number, spans in progress.sending for span in spans]
        ranges = frame.sparkSession.createDataFrame(rows, "t STRING, p INT, first LONG, after LONG")
        inside = (f.col("offset") >= f.col("first")) & (f.col("offset") < f.col("after"))
        matching = (f.col("topic") == f.col("t")) & (f.col("partition") == f.col("p")) & inside
        return frame.join(f.broadcast(ranges), matching, "left_semi")
    conditions = [
        (f.col("topic") == topic) & (f.col("partition") == number) & f.col("offset").between(start, end - 1)
        for topic, number, spans in progress.sending
        for start, end in spans
    ]
    any_of = conditions[0]
    for condition in conditions[1:]:
        any_of |= condition
    return frame.where(any_of)


def records(frame: DataFrame, *, keep_partitions: bool) -> DataFrame:
    from pyspark.sql import functions as f

    value = f.col("value") if "value" in frame.columns else _as_json(frame)
    no_time = f.timestamp_millis(f.lit(NO_TIMESTAMP))
    columns = [f.col("key"), value.alias("value"), f.coalesce("timestamp", no_time).alias("timestamp")]
    if "headers" in frame.columns:
        columns.append(f.col("headers"))
    if keep_partitions:
        columns.append(f.col("partition"))
    return frame.select(*columns)


def _as_json(frame: DataFrame) -> Any:
    """Decoded columns and undecoded fields as one JSON object; null if all are null (a tombstone)."""
    from pyspark.sql import functions as f

    has_other = OTHER_FIELDS in frame.columns
    fields = [
        _field(field, has_other) for field in frame.schema if field.name not in (*_SOURCE_COLUMNS, *_ADDED_COLUMNS)
    ]
    columns_json = f.to_json(f.struct(*fields), _JSON_OPTIONS)
    if not has_other:
        return f.when(columns_json != "{}", columns_json)
    other = f.when(f.col(OTHER_FIELDS) != "{}", f.col(OTHER_FIELDS))
    is_tombstone = f.col(OTHER_FIELDS).isNull() & (columns_json == "{}")
    joined = f.concat(columns_json.substr(f.lit(1), f.length(columns_json) - 1), f.lit(","), other.substr(2, 1 << 30))
    together = f.when(other.isNull(), columns_json).otherwise(f.when(columns_json == "{}", other).otherwise(joined))
    return f.when(~is_tombstone, together)


def _field(field: StructField, has_other: bool) -> Column:
    # A decoded column, or null if ``other_fields`` has the whole field because the column lacks a part of it.
    from pyspark.sql import functions as f

    from oncelog.spark.jobs.shape import quoted

    column = f.col(quoted(field.name))
    if not has_other or "struct" not in field.dataType.simpleString():
        return column
    is_in_other_fields = f.array_contains(f.json_object_keys(OTHER_FIELDS), f.lit(field.name))
    return f.when(~f.coalesce(is_in_other_fields, f.lit(False)), column).alias(field.name)


def _visible(table: Table) -> Spans:
    # The offsets of the visible files without those in quarantine, which a later load may still decode.
    ranges = {
        f"{label}-{number}": merge_spans((file.start, file.end) for file in files)
        for (label, number), files in table.files().items()
    }
    bad = _quarantined(table)
    return {key: subtract_spans(spans, bad.get(key, [])) for key, spans in ranges.items()}


def _quarantined(table: Table) -> Spans:
    import pyarrow.parquet as pq

    spans_by_partition: dict[str, list[Span]] = {}
    for path in sorted(table.quarantine.glob("*.parquet")):
        rows = pq.read_table(path, columns=["topic", "partition", "offset"], partitioning=None).to_pylist()
        for row in rows:
            key = f"{topic_label(row['topic'])}-{row['partition']}"
            spans_by_partition.setdefault(key, []).append((row["offset"], row["offset"] + 1))
    return {key: merge_spans(spans) for key, spans in spans_by_partition.items()}


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def subtract_spans(spans: Sequence[Span], taken: Sequence[Span]) -> list[Span]:
    """The offsets of ``spans`` not in ``taken``; both must be merged."""
    remaining: list[Span] = []
    for start, end in spans:
        position = start
        for first, last in taken:
            if last <= position or first >= end:
                continue
            if first > position:
                remaining.append((position, first))
            position = max(position, last)
        if position < end:
            remaining.append((position, end))
    return remaining


class _Progress:
    """The offsets already sent to a topic, by cluster and topic id, and those of the current job."""

    def __init__(self, table: Table, identity: str) -> None:
        self._path = table.hidden / "exports" / f"{identity}.json"
        self._path.parent.mkdir(exist_ok=True)
        self._topics: list[str] = sorted(table.describe().get("topics", {}))
        try:
            state = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            state = {"sent": {}, "job": None, "sending": {}}
        except ValueError:
            raise TableError(
                f"{self._path} is not readable JSON: restore it, or remove it to export every row again"
            ) from None
        check_format(str(self._path), state)
        self._sent = _spans(state["sent"])
        self.job: str | None = state["job"]
        self._sending = _spans(state["sending"])

    @property
    def sending(self) -> list[tuple[str, int, list[Span]]]:
        names = {topic_label(topic): topic for topic in self._topics}
        result = []
        for key, spans in sorted(self._sending.items()):
            label, _, number = key.rpartition("-")
            if label not in names:
                raise OptionError(
                    f"the table has rows of topic {label!r}, which table.json does not list: load that topic first"
                )
            result.append((names[label], int(number), spans))
        return result

    def begin(self, visible: Spans) -> bool:
        """Plan a job for the unsent offsets. Returns False if there are none."""
        unsent = {key: subtract_spans(spans, self._sent.get(key, [])) for key, spans in visible.items()}
        self._sending = {key: spans for key, spans in unsent.items() if spans}
        if not self._sending:
            return False
        # A random id: the sink skips a job only if this very one was decided.
        self.job = f"export-{uuid.uuid4().hex}"
        self._write()
        return True

    def finish(self) -> str | None:
        """Record that the job was decided. Returns its id."""
        for key, spans in self._sending.items():
            self._sent[key] = merge_spans([*self._sent.get(key, []), *spans])
        job, self.job, self._sending = self.job, None, {}
        self._write()
        return job

    def _write(self) -> None:
        temporary = self._path.with_suffix(".new")
        state = {"format": FORMAT, "sent": self._sent, "job": self.job, "sending": self._sending}
        temporary.write_text(json.dumps(state), encoding="utf-8")
        fsync(temporary)
        os.replace(temporary, self._path)
        fsync(self._path.parent)


def _spans(values: Mapping[str, Sequence[Sequence[int]]]) -> Spans:
    return {key: [(start, end) for start, end in spans] for key, spans in values.items()}
