"""``oncelog export``: a table's rows into a topic, exactly once, through the sink.

The rule: the offsets of a job are durable under its job id before any row is sent, and the sink skips a job that
was decided. Rows of given offsets do not change, however the table's files are compacted meanwhile; so a job that
runs again sends the same rows or none. What was sent is kept as offset ranges, so rows that a backfill brings are
sent later; by cluster and topic id, so another topic of the same name gets everything. Rows of one partition are sent
by one task in the order of their offsets.
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
from oncelog.spark.table.directory import Table, TableError, loaded_directory, topic_label

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField

Span = tuple[int, int]
Spans = dict[str, list[Span]]
"""``<topic label>-<partition>`` → offsets, end exclusive, in rising order and apart."""
_OWN: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
_SETTINGS: Final = {
    "spark.sql.adaptive.enabled": "false",  # a job that runs again has the same tasks
    "spark.sql.session.timeZone": "UTC",
}
MOST_CONDITIONS: Final = 100
"""With more spans than these, they are joined with the rows."""
_JSON_OPTIONS: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",  # Spark's own format ends at milliseconds
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_BESIDE: Final = (OTHER_FIELDS, "event_time", "day", "hour", "offsets")


@dataclass(frozen=True, slots=True)
class ExportReport:
    """Totals of an export. ``resumed``: an earlier run had begun this job; if it was decided, nothing is sent again."""

    directory: str
    topic: str
    rows: int = 0
    job: str | None = None
    resumed: bool = False
    seconds: float = 0.0
    rows_per_second: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values, for JSON."""
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
    """Send every row of a table that was not sent to ``topic`` yet; columns of decoded values go as JSON.

    ``options`` are the sink's (``kafka.*``, ``exactlyOnce``). ``keep_partitions`` sends a row to the partition of the
    number it came from, otherwise the key decides. Raises SparkSourceError and ClientError, each one line.
    """
    if str(directory).startswith(("delta:", "iceberg:")):
        raise TableError(
            f"{directory} is not exported: only tables in a directory of Parquet files are. Delta and Iceberg "
            "tables are read by Spark itself, and written to a topic by format('oncelog')"
        )
    path, started = loaded_directory(directory), time.monotonic()
    given = {**(options or {}), "kafka.bootstrap.servers": bootstrap_servers, "topic": topic}
    with Table.open(path, role="fill") as table, ExitStack() as stack:
        state = _Progress(table, _identity(given, topic))
        resumed = state.job is not None
        if state.job is None and not state.begin(_visible(table)):
            return ExportReport(str(path), topic)
        from oncelog.spark.jobs.spark_reader import one_line_error
        from oncelog.spark.session.local_session import local_session

        session = spark or stack.enter_context(local_session(log=path / "_oncelog" / "spark.log"))
        try:
            rows = _send(session, path, state, given, keep_partitions=keep_partitions)
        except Exception as error:
            raise one_line_error(error) from error
        job = state.finish()
    seconds = time.monotonic() - started
    return ExportReport(str(path), topic, rows, job, resumed, round(seconds, 3), round(rows / seconds, 1))


def _identity(options: Mapping[str, str], topic: str) -> str:
    """The topic's name with its id and its cluster's; it is created if it is missing and brokers do that."""
    from oncelog.spark.sink.options import parse_sink_options
    from oncelog.spark.sink.sink_client import open_client

    with open_client(parse_sink_options(options)) as client:
        found = client.topic(topic, create=True)
        cluster = client.view.cluster_id or ""
    return f"{topic_label(topic)}@{uuid_text(found.topic_id)}@{cluster}"


def _send(
    session: SparkSession, path: Path, state: _Progress, options: Mapping[str, str], *, keep_partitions: bool
) -> int:
    from oncelog.spark.format.data_source import register
    from oncelog.spark.session.sessions import JobSession, check_shared

    job = JobSession(session, _SETTINGS)
    register(job.spark)
    check_shared(job, path / "_oncelog")
    with job.settings():
        chosen = _chosen(job.spark.read.parquet(str(path.absolute())), state)
        rows = chosen.count()
        ordered = chosen.repartition(max(1, len(state.sending)), "topic", "partition").sortWithinPartitions(
            "topic", "partition", "offset"
        )
        frame = records(ordered, keep_partitions=keep_partitions)
        frame.write.format("oncelog").options(**options).option("jobId", state.job).mode("append").save()
    return int(rows)


def _chosen(frame: DataFrame, state: _Progress) -> DataFrame:
    from pyspark.sql import functions as f

    if sum(len(spans) for _, _, spans in state.sending) > MOST_CONDITIONS:
        rows = [(topic, number, *span) for topic, number, spans in state.sending for span in spans]
        wanted = frame.sparkSession.createDataFrame(rows, "t STRING, p INT, first LONG, after LONG")
        inside = (f.col("offset") >= f.col("first")) & (f.col("offset") < f.col("after"))
        matching = (f.col("topic") == f.col("t")) & (f.col("partition") == f.col("p")) & inside
        return frame.join(f.broadcast(wanted), matching, "left_semi")
    conditions = [
        (f.col("topic") == topic) & (f.col("partition") == number) & f.col("offset").between(start, end - 1)
        for topic, number, spans in state.sending
        for start, end in spans
    ]
    any_of = conditions[0]
    for one in conditions[1:]:
        any_of |= one
    return frame.where(any_of)


def records(frame: DataFrame, *, keep_partitions: bool) -> DataFrame:
    """A table's rows as the sink takes them."""
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
    """Decoded columns and the fields that had none, together; null where all are (a tombstone)."""
    from pyspark.sql import functions as f

    has_other = OTHER_FIELDS in frame.columns
    fields = [_field(one, has_other) for one in frame.schema if one.name not in (*_OWN, *_BESIDE)]
    said = f.to_json(f.struct(*fields), _JSON_OPTIONS)
    if not has_other:
        return f.when(said != "{}", said)
    other = f.when(f.col(OTHER_FIELDS) != "{}", f.col(OTHER_FIELDS))
    is_tombstone = f.col(OTHER_FIELDS).isNull() & (said == "{}")
    joined = f.concat(said.substr(f.lit(1), f.length(said) - 1), f.lit(","), other.substr(2, 1 << 30))
    together = f.when(other.isNull(), said).otherwise(f.when(said == "{}", other).otherwise(joined))
    return f.when(~is_tombstone, together)


def _field(field: StructField, has_other: bool) -> Column:
    """A decoded column; null where ``other_fields`` has the whole field, with what the column has no place for."""
    from pyspark.sql import functions as f

    from oncelog.spark.jobs.shape import quoted

    column = f.col(quoted(field.name))
    if not has_other or "struct" not in field.dataType.simpleString():
        return column
    is_there = f.array_contains(f.json_object_keys(OTHER_FIELDS), f.lit(field.name))
    return f.when(~f.coalesce(is_there, f.lit(False)), column).alias(field.name)


def _visible(table: Table) -> Spans:
    """The offsets of the table's visible files. Rows in quarantine do not count: loaded anew, they may come into it."""
    ranges = {
        f"{label}-{number}": merge_spans((file.start, file.end) for file in files)
        for (label, number), files in table.files().items()
    }
    bad = _quarantined(table)
    return {key: subtract_spans(spans, bad.get(key, [])) for key, spans in ranges.items()}


def _quarantined(table: Table) -> Spans:
    import pyarrow.parquet as pq

    found: dict[str, list[Span]] = {}
    for path in sorted(table.quarantine.glob("*.parquet")):
        rows = pq.read_table(path, columns=["topic", "partition", "offset"], partitioning=None).to_pylist()
        for row in rows:
            key = f"{topic_label(row['topic'])}-{row['partition']}"
            found.setdefault(key, []).append((row["offset"], row["offset"] + 1))
    return {key: merge_spans(spans) for key, spans in found.items()}


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """The offsets of ``spans`` in as few spans as possible, in rising order."""
    found: list[Span] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def subtract_spans(spans: Sequence[Span], taken: Sequence[Span]) -> list[Span]:
    """The offsets of ``spans`` that are not in ``taken``; both merged."""
    left: list[Span] = []
    for start, end in spans:
        at = start
        for first, last in taken:
            if last <= at or first >= end:
                continue
            if first > at:
                left.append((at, first))
            at = max(at, last)
        if at < end:
            left.append((at, end))
    return left


class _Progress:
    """The offsets sent to a topic, and those of the job under way; durable before the job begins."""

    def __init__(self, table: Table, identity: str) -> None:
        self._path = table.hidden / "exports" / f"{identity}.json"
        self._path.parent.mkdir(exist_ok=True)
        self._topics: list[str] = sorted(table.describe().get("topics", {}))
        try:
            said = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            said = {"sent": {}, "job": None, "sending": {}}
        except ValueError:
            raise TableError(
                f"{self._path} is not readable JSON: restore it, or remove it to export every row again"
            ) from None
        self._sent = _spans(said["sent"])
        self.job: str | None = said["job"]
        self._sending = _spans(said["sending"])

    @property
    def sending(self) -> list[tuple[str, int, list[Span]]]:
        """Topic, partition and offsets of the job."""
        names = {topic_label(topic): topic for topic in self._topics}
        found = []
        for key, spans in sorted(self._sending.items()):
            label, _, number = key.rpartition("-")
            if label not in names:
                raise OptionError(
                    f"the table has rows of topic {label!r}, which its table.json does not name: load that topic first"
                )
            found.append((names[label], int(number), spans))
        return found

    def begin(self, visible: Spans) -> bool:
        """Plan a job for what was not sent; False when there is nothing."""
        left = {key: subtract_spans(spans, self._sent.get(key, [])) for key, spans in visible.items()}
        self._sending = {key: spans for key, spans in left.items() if spans}
        if not self._sending:
            return False
        self.job = f"export-{uuid.uuid4().hex}"
        self._write()
        return True

    def finish(self) -> str | None:
        """The job is decided."""
        for key, spans in self._sending.items():
            self._sent[key] = merge_spans([*self._sent.get(key, []), *spans])
        job, self.job, self._sending = self.job, None, {}
        self._write()
        return job

    def _write(self) -> None:
        temporary = self._path.with_suffix(".new")
        said = {"sent": self._sent, "job": self.job, "sending": self._sending}
        temporary.write_text(json.dumps(said), encoding="utf-8")
        fsync(temporary)
        os.replace(temporary, self._path)
        fsync(self._path.parent)


def _spans(said: Mapping[str, Sequence[Sequence[int]]]) -> Spans:
    return {key: [(start, end) for start, end in spans] for key, spans in said.items()}
