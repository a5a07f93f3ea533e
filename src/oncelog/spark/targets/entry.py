"""Entry points of ``oncelog.spark.load``, ``stream`` and ``compact``, which choose the kind of table by its address."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncelog.base.ids import TopicPartition, uuid_text
from oncelog.client.blocking import Client
from oncelog.client.machine.requests import offset_query
from oncelog.spark.jobs.load_job import request_for, run_load
from oncelog.spark.jobs.load_plan import DEFAULT_ROWS_PER_STEP, PartitionState
from oncelog.spark.jobs.load_report import Event, LoadReport, LoadRequest
from oncelog.spark.jobs.load_table import LoadTable, TableFiles
from oncelog.spark.jobs.quarantine_topic import quarantine_sender
from oncelog.spark.jobs.shape import PLAIN, Shape
from oncelog.spark.jobs.stream_query import StreamRequest, run_stream
from oncelog.spark.source.options import SourceOptions, parse_options
from oncelog.spark.source.plan.offset_planner import OffsetPlanner, open_client
from oncelog.spark.table.compact import DEFAULT_TARGET_BYTES, CompactReport
from oncelog.spark.table.compact import compact as compact_parquet
from oncelog.spark.table.directory import TableError, topic_label
from oncelog.spark.targets.address import TableAddress, parse_address
from oncelog.spark.targets.format_table import FormatTable, lock, open_target
from oncelog.spark.targets.parquet_table import ParquetTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncelog.spark.jobs.spark_reader import SparkReader


class ClusterLog:
    def __init__(self, options: SourceOptions, request: LoadRequest) -> None:
        self._options, self._request = options, request

    def topic_ids(self) -> dict[str, str]:
        """Topic → id as Apache Kafka prints it, or "" if the cluster has none."""
        with open_client(self._options) as client:
            infos = [client.topic(topic) for topic in self._request.topics]
        return {info.name: uuid_text(info.topic_id) if any(info.topic_id) else "" for info in infos}

    def states(self, table: TableFiles) -> list[PartitionState]:
        with open_client(self._options) as client:
            planner = OffsetPlanner(client, self._options)
            partitions = planner.partitions()
            files = table.files(partitions)  # before the ends, which another writer may meanwhile pass
            topic_ids = planner.topic_ids(partitions)
            earliest, latest = planner.earliest(partitions), planner.latest(partitions)
            ends = planner.high_watermarks(partitions) if self._options.read_committed else latest
            since = self._offsets_at(client, partitions, latest)
        return [
            PartitionState(
                partition,
                files.get((topic_label(partition.topic), partition.partition), []),
                earliest[partition],
                latest[partition],
                since.get(partition),
                ends[partition],
                topic_ids.get(partition.topic, ""),
            )
            for partition in partitions
        ]

    def _offsets_at(
        self, client: Client, partitions: list[TopicPartition], latest: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        if self._request.from_ms is None:
            return {}
        listed = client.list_offsets(
            dict.fromkeys(partitions, offset_query(self._request.from_ms)), read_committed=self._options.read_committed
        )
        return {
            partition: listed[partition].offset if listed[partition].offset >= 0 else latest[partition]
            for partition in partitions
        }


def load(
    topics: str | Sequence[str],
    bootstrap_servers: str,
    to: str | Path,
    *,
    spark: SparkSession | None = None,
    from_ms: int | None = None,
    rows_per_step: int = DEFAULT_ROWS_PER_STEP,
    options: Mapping[str, str] | None = None,
    shape: Shape = PLAIN,
    quarantine_topic: str | None = None,
    backfill: bool = False,
    compact_below: int | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
    catalog: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> LoadReport:
    """Load everything new of ``topics`` into the table at ``to``, each record exactly once.

    ``to``: a directory of Parquet files, ``delta:PLACE`` (a directory or ``s3://…``), ``iceberg:DIR``, or with
    ``catalog`` (from pyiceberg's configuration) ``iceberg:NAMESPACE.TABLE``. ``storage_options``: those of delta-rs, or
    pyiceberg's catalog and file properties.
    ``from_ms``: reload rows from that time on (milliseconds since the epoch), in place of existing ones.
    ``options``: the source's, such as ``{"includeHeaders": "true", "failOnDataLoss": "false"}``; aborted transactions
    are skipped unless ``kafka.isolation.level`` is set. ``shape``: decodes values and partitions by day; bad rows go to
    a quarantine beside the table, or to ``quarantine_topic``. ``backfill``: only rows before a partition's first one,
    beside a stream that appends. ``compact_below``: afterwards, merge files smaller than that many bytes. Without
    ``spark`` a local session is started and stopped.
    Raises SparkSourceError (DataLoss, OptionError, TableError) and ClientError, with one-line messages.
    """
    address = parse_address(str(to), catalog, storage_options or {})
    place = to if address is None else str(address)
    request = request_for(
        topics, bootstrap_servers, place, from_ms, rows_per_step, options, shape, quarantine_topic, backfill=backfill
    )
    parsed = parse_options(request.options)
    table = _table_at(address, request, parsed)
    source = ClusterLog(parsed, request)
    source.topic_ids()  # a wrong address or topic fails before a directory is created
    with table.lock("fill" if backfill else "append"), ExitStack() as stack:

        def start_writer() -> Any:
            return table.writer(_reader(spark, table, request, stack))

        report = run_load(table, source, start_writer, request, parsed, on_event)
        if compact_below is not None and not backfill:
            report.compacted_files = table.compact(compact_below)
        return report


def stream(
    topics: str | Sequence[str],
    bootstrap_servers: str,
    to: str | Path,
    how: StreamRequest | None = None,
    *,
    spark: SparkSession | None = None,
    options: Mapping[str, str] | None = None,
    shape: Shape = PLAIN,
    quarantine_topic: str | None = None,
    catalog: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> LoadReport:
    """Load ``topics`` into the table at ``to`` until ``how.stop`` is set, or ``available-now`` has read everything.

    ``stop`` lets the running batch end. Arguments and errors are those of ``load``.
    """
    address = parse_address(str(to), catalog, storage_options or {})
    how = how or StreamRequest()
    place = to if address is None else str(address)
    request = request_for(topics, bootstrap_servers, place, None, 1, options, shape, quarantine_topic)
    parsed = parse_options(request.options)
    table = _table_at(address, request, parsed)
    source = ClusterLog(parsed, request)
    source.topic_ids()
    with table.lock(), ExitStack() as stack:
        # Spark's checkpoint is thrown away: the table is the only one.
        checkpoint = Path(tempfile.mkdtemp(prefix="oncelog-stream-"))
        stack.callback(shutil.rmtree, checkpoint, ignore_errors=True)
        return run_stream(
            table, source, lambda: _reader(spark, table, request, stack), request, parsed, checkpoint, how
        )


def compact(
    table: str | Path,
    target_bytes: int = DEFAULT_TARGET_BYTES,
    *,
    catalog: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> CompactReport:
    """Merge a table's small files into larger ones of ``target_bytes``, in one step for readers, without cluster and
    Spark.

    Raises TableError, and TableBusy while a load or stream holds a directory; those compact by themselves.
    """
    address = parse_address(str(table), catalog, storage_options or {})
    if address is None:
        return compact_parquet(table, target_bytes)
    if address.is_directory and not Path(address.place).is_dir():
        raise TableError(f"there is no table at {address}")
    started = time.monotonic()
    with lock(address):
        before, after = open_target(address).compact(target_bytes)
    seconds = round(time.monotonic() - started, 3)
    return CompactReport(str(address), *((before, after) if after < before else (0, 0)), seconds=seconds)


def _table_at(address: TableAddress | None, request: LoadRequest, options: SourceOptions) -> LoadTable[Any]:
    if address is None:
        return ParquetTable(request, options, quarantine_sender(options, Path(request.to)))
    return FormatTable(address, request, options)


def _reader(spark: SparkSession | None, table: LoadTable[Any], request: LoadRequest, stack: ExitStack) -> SparkReader:
    from oncelog.spark.jobs.spark_reader import SparkReader
    from oncelog.spark.session.local_session import local_session

    return SparkReader(spark or stack.enter_context(local_session(log=table.spark_log)), request.options)
