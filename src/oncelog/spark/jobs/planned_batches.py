"""Runs the micro-batches of ``oncelog stream`` over Spark Connect, where Spark cannot call this process.

A Connect server would run the ``foreachBatch`` function in its own process, without the table's lock. Batches are
therefore planned here by the streaming source's planner, and passed to the function as frames of ranges. The table
stays the only checkpoint (ADR 0001).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from oncelog.base.units import SECOND_MS
from oncelog.spark.jobs.load_plan import DEFAULT_ROWS_PER_STEP, Piece
from oncelog.spark.jobs.load_report import LoadRequest
from oncelog.spark.jobs.spark_reader import ranges_option
from oncelog.spark.session.errors import OptionError
from oncelog.spark.source.offset_ranges import ReadLimits
from oncelog.spark.source.options import parse_options
from oncelog.spark.source.plan.stream_planner import StreamPlanner
from oncelog.spark.source.stream_position import Position
from oncelog.spark.table.directory import RowsFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_BATCHING_OPTIONS: Final = (
    "subscribe",
    "minPartitions",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
)
AVAILABLE_NOW: Final = "available-now"


class Pace(Protocol):
    trigger: str
    stop: threading.Event


def run_batches(
    session: SparkSession,
    decoding: Mapping[str, str],
    handler: Callable[[DataFrame, int], None],
    request: LoadRequest,
    starts: Mapping[str, Mapping[str, int]],
    checkpoint: Path,
    pace: Pace,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Call ``handler`` with batch after batch until ``pace.stop`` is set, or ``available-now`` has read everything, or
    ``is_over`` after a batch.
    Writes each batch's end to ``checkpoint``. Raises what ``handler`` raises."""
    every_ms = None if pace.trigger == AVAILABLE_NOW else interval_ms(session, pace.trigger)
    options = parse_options({**request.options, "startingOffsets": json.dumps(starts)}).check_stream()
    options = replace(options, min_partitions=None, max_records_per_partition=None)
    limits = ReadLimits(
        None if every_ms is None else options.min_offsets_per_trigger,
        options.max_offsets_per_trigger or DEFAULT_ROWS_PER_STEP,
        options.max_trigger_delay_ms,
    )
    (checkpoint / "offsets").mkdir(parents=True)
    reader = {name: value for name, value in request.options.items() if name not in _BATCHING_OPTIONS} | dict(decoding)
    number = 0
    with closing(StreamPlanner(options)) as planner:
        position = planner.initial()
        target = planner.latest() if every_ms is None else None
        while not pace.stop.is_set():
            began_ms = _now_ms()
            end = _end_of_batch(planner, limits, position, target)
            if end is not None:
                pieces = [
                    Piece(offset_range, RowsFile.of(offset_range.topic_partition, offset_range.start, offset_range.end))
                    for offset_range in planner.ranges(position, end)
                ]
                # The handler reads the end from the checkpoint, as in a query of Spark's.
                write_batch_end(checkpoint, number, end)
                frame = session.read.format("oncelog").options(**reader).option("ranges", ranges_option(pieces)).load()
                handler(frame, number)
                if is_over():
                    return
                position, number = end, number + 1
            elif every_ms is None:
                return
            if every_ms is not None:
                pace.stop.wait(max(0, every_ms - (_now_ms() - began_ms)) / SECOND_MS)


def _end_of_batch(
    planner: StreamPlanner, limits: ReadLimits, position: Position, target: Position | None
) -> Position | None:
    """The end of the next batch; None while there is nothing to read, or too little."""
    latest = planner.latest_after(position, target)
    begin_offsets = planner.starting_offsets(position, latest)
    end_offsets = limits.end_of_batch(begin_offsets, latest.offsets, _now_ms())
    if end_offsets is None or all(end_offsets[partition] <= begin_offsets[partition] for partition in end_offsets):
        return None
    return Position(end_offsets, latest.topic_ids)


def interval_ms(session: SparkSession, text: str) -> int:
    """Parse an interval as Spark does (``10 seconds``, ``1 minute``) into milliseconds. Raises OptionError."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f

    epoch = f.timestamp_millis(f.lit(0))
    try:
        row = session.range(1).select(f.unix_millis(epoch + f.lit(text).cast("interval"))).first()
    except PySparkException:
        row = None
    if row is None or row[0] is None or row[0] < 0:
        raise wrong_interval(text)
    return int(row[0])


def wrong_interval(text: str) -> OptionError:
    return OptionError(f"a trigger must be an interval such as '10 seconds', or 'available-now', got {text!r}")


def write_batch_end(checkpoint: Path, number: int, end: Position) -> None:
    """Write a batch's end in Spark's format: version, metadata, then a line for the only source."""
    (checkpoint / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps(end.to_json())}\n", encoding="utf-8")


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
