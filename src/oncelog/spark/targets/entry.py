"""The beginning of ``oncelog.spark.load``, ``stream`` and ``compact``: the address says which kind of table it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oncelog.spark.jobs.load_job import load as load_parquet
from oncelog.spark.jobs.load_plan import DEFAULT_ROWS_PER_STEP
from oncelog.spark.jobs.load_report import Event, LoadReport
from oncelog.spark.jobs.shape import PLAIN, Shape
from oncelog.spark.jobs.stream_job import stream as stream_parquet
from oncelog.spark.jobs.stream_query import StreamRequest
from oncelog.spark.table.compact import DEFAULT_TARGET_BYTES, CompactReport
from oncelog.spark.table.compact import compact as compact_parquet
from oncelog.spark.table.directory import TableError
from oncelog.spark.targets.address import parse_address
from oncelog.spark.targets.opening import held, open_target
from oncelog.spark.targets.target_load import load_target
from oncelog.spark.targets.target_stream import stream_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    ``catalog`` (of pyiceberg's configuration) ``iceberg:NAMESPACE.TABLE``. ``storage_options`` are the format's: of
    delta-rs, or pyiceberg's catalog and file properties.
    ``from_ms``: load rows from that time (milliseconds since the epoch) on anew, in place of those already there.
    ``options``: the source's, e.g. ``{"includeHeaders": "true", "failOnDataLoss": "false"}``; aborted transactions are
    left out unless ``kafka.isolation.level`` says otherwise. ``shape``: values decoded, kept under their day; rows that
    cannot be go to a quarantine beside the table, or to ``quarantine_topic``. ``backfill``: only what is before a
    partition's first row, beside a stream that appends. ``compact_below``: afterwards, files smaller than that many
    bytes become larger ones. Without ``spark`` a local session is started and stopped.
    Raises SparkSourceError (DataLoss, OptionError, TableError) and ClientError, each one line.
    """
    address = parse_address(str(to), catalog, storage_options or {})
    arguments = {
        "spark": spark,
        "from_ms": from_ms,
        "rows_per_step": rows_per_step,
        "options": options,
        "shape": shape,
        "quarantine_topic": quarantine_topic,
        "backfill": backfill,
        "compact_below": compact_below,
        "on_event": on_event,
    }
    if address is None:
        return load_parquet(topics, bootstrap_servers, to, **arguments)  # type: ignore[arg-type]
    return load_target(topics, bootstrap_servers, address, **arguments)  # type: ignore[arg-type]


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
    """Load ``topics`` into the table at ``to`` until ``how.stop`` is set, or all is there with ``available-now``.

    Setting ``stop`` ends it after the batch under way. Arguments and errors are those of ``load``.
    """
    address = parse_address(str(to), catalog, storage_options or {})
    if address is None:
        return stream_parquet(
            topics,
            bootstrap_servers,
            to,
            how,
            spark=spark,
            options=options,
            shape=shape,
            quarantine_topic=quarantine_topic,
        )
    return stream_target(
        topics,
        bootstrap_servers,
        address,
        how or StreamRequest(),
        spark=spark,
        options=options,
        shape=shape,
        quarantine_topic=quarantine_topic,
    )


def compact(
    table: str | Path,
    target_bytes: int = DEFAULT_TARGET_BYTES,
    *,
    catalog: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> CompactReport:
    """Make larger files of a table's small ones, in one step for readers. Raises TableError.

    ``target_bytes``: the size that files are to have. Nothing is read from a cluster and no Spark is needed. A load or
    stream that holds a directory refuses it; those compact by themselves.
    """
    address = parse_address(str(table), catalog, storage_options or {})
    if address is None:
        return compact_parquet(table, target_bytes)
    if address.is_directory and not Path(address.place).is_dir():
        raise TableError(f"there is no table at {address}")
    started = time.monotonic()
    with held(address):
        before, after = open_target(address).compact(target_bytes)
    seconds = round(time.monotonic() - started, 3)
    return CompactReport(str(address), *((before, after) if after < before else (0, 0)), seconds=seconds)
