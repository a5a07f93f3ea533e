"""A task of the source: reads one range of one partition as Arrow record batches, on an executor.

Every record of the range that is in the log comes once, in offset order, and only of the planned topic, by its id. A
log that ends before the range gets the driver's retry window, and the task waits for records of an open transaction; a
wait without progress ends in an error that names the transaction. Memory is bounded by one broker response (4 MB unless
``max.partition.fetch.bytes`` differs), its decompressed part (5 MB, or one batch) and four batches.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicId, uuid_bytes
from oncelog.base.units import INT64_MAX, MIB
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.blocking.system import now_ms
from oncelog.client.blocking.topic_identity import TopicWatch
from oncelog.client.errors import BrokerRefused
from oncelog.records.batch import CorruptBatch
from oncelog.records.columns.decode import Selection, column_schema, decode
from oncelog.spark.json_values.decoding import JsonDecoding
from oncelog.spark.session.errors import DataLoss, SparkSourceError
from oncelog.spark.source.offset_ranges import OffsetRange
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.plan.offset_planner import OffsetPlanner, open_client
from oncelog.spark.source.read.read_ahead import read_ahead

if TYPE_CHECKING:
    from oncelog.client.blocking import Client, Fetched


Batches: TypeAlias = "Generator[pa.RecordBatch, None, None]"

_LOG: Final = logging.getLogger("oncelog.spark")
_TIMESTAMP: Final = column_schema(include_headers=False).get_field_index("timestamp")
_VALUE: Final = column_schema(include_headers=False).get_field_index("value")
# Approximate size of the record batches passed to Spark.
# Small enough for Spark's memory pools, large enough to be cheap.
BATCH_BYTES: Final = 2 * MIB
_BATCHES_AHEAD: Final = 2
_NO_RECORDS: Final = memoryview(b"")
_MAX_TIMESTAMP_MS: Final = pa.scalar(INT64_MAX // 1000, pa.int64())
_SPARK_TIMESTAMP: Final = pa.field("timestamp", pa.timestamp("us", "UTC"))


def read_range(options: SourceOptions, offset_range: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range with Spark's types. Raises DataLoss, SparkSourceError, ClientError."""
    rows = _batches(options, offset_range)
    if options.decode_json is not None:
        rows = _decoded(JsonDecoding.parse(options.decode_json), rows)
    if options.decode_registry:
        rows = _decoded_by_registry(options, rows)
    with malloc_memory(), closing(read_ahead(rows, _BATCHES_AHEAD)) as batches:
        yield from batches


def _decoded(decoding: JsonDecoding, rows: Batches) -> Batches:
    from oncelog.spark.json_values.decoder import JsonDecoder

    with closing(rows):
        yield from map(JsonDecoder(decoding).decode, rows)


def _decoded_by_registry(options: SourceOptions, rows: Batches) -> Batches:
    from oncelog.spark.registry_values.decoder import HEADERS, RegistryDecoder
    from oncelog.spark.registry_values.decoding import RegistryDecoding

    decoders = [RegistryDecoder(RegistryDecoding.parse(text)) for text in options.decode_registry]
    with closing(rows):
        for batch in rows:
            for decoder in decoders:
                batch = decoder.decode(batch)
            yield batch if options.include_headers else batch.drop_columns([HEADERS])


def _batches(options: SourceOptions, offset_range: OffsetRange) -> Batches:
    with open_client(options) as client:
        watch = TopicWatch(client)
        other = watch.begin(
            offset_range.topic, TopicId(uuid_bytes(offset_range.topic_id)) if offset_range.topic_id else None
        )
        if other is not None:
            _report_loss(options, offset_range, offset_range.start, 0, other.description)
            return
        position = offset_range.start
        # The end is an offset, not a number of records: markers and compaction leave gaps.
        while position < offset_range.end:
            for fetched in _fetch(client, options, offset_range, position, watch):
                if fetched.error_code:
                    position = _handle_error(client, options, offset_range, fetched)
                    break
                yield from _decode(options, offset_range, fetched)
                position = fetched.next_offset
                del fetched  # frees its memory for the next fetch
            else:
                return


def _fetch(
    client: Client, options: SourceOptions, offset_range: OffsetRange, position: int, watch: TopicWatch
) -> Iterator[Fetched]:
    """Fetch from ``position`` to the range's end. Raises SparkSourceError after a while without progress."""
    fetcher = Fetcher(client, options.fetch)
    last_progress, fetched = now_ms(), None
    try:
        fetcher.assign({offset_range.topic_partition: position}, {offset_range.topic_partition: offset_range.end})
        while len(fetcher):
            polled = fetcher.poll()
            for other in watch.replaced():
                _report_loss(options, offset_range, position, 0, other.description)
                return
            while polled:
                yield polled[0]
                fetched = polled.pop(0)._replace(records=_NO_RECORDS)  # frees the memory for the next fetch
                if fetched.next_offset > position:
                    position, last_progress = fetched.next_offset, now_ms()
            waited_ms = now_ms() - last_progress
            high = offset_range.end if fetched is None else fetched.high_watermark
            # Without failOnDataLoss, records that are there are read before the missing ones are given up.
            lacks = high < offset_range.end and (options.fail_on_data_loss or high <= position)
            if lacks and waited_ms >= options.retry_window_ms:
                _report_loss(options, offset_range, offset_range.end, high, "the log was truncated while it was read")
                return
            no_answer_ms = client.config.retry_timeout_ms if fetched is None else 0
            if waited_ms > max(options.no_progress_timeout_ms, no_answer_ms):
                raise SparkSourceError(_no_progress(client, options, offset_range, position, fetched))
    finally:
        fetcher.close()


def _no_progress(
    client: Client, options: SourceOptions, offset_range: OffsetRange, position: int, last: Fetched | None
) -> str:
    """The error message for a range without progress, with the transaction that holds it, if known."""
    partition = offset_range.topic_partition
    text = f"Cannot fetch record for offset {position} of {partition} in {options.no_progress_timeout_ms} milliseconds"
    if last is None or not options.read_committed or last.last_stable_offset > position:
        return text
    # Only a hanging transaction needs the admin code.
    from oncelog.spark.source.plan.stable_offset_watch import StableOffsetWatch

    stable, end = {partition: last.last_stable_offset}, {partition: last.high_watermark}
    return ": ".join([text, *StableOffsetWatch(0).observe(client, stable, end, now_ms())])


def _report_loss(options: SourceOptions, offset_range: OffsetRange, offset: int, available: int, reason: str) -> None:
    loss = DataLoss(offset_range.topic_partition, offset, available, reason)
    if options.fail_on_data_loss:
        raise loss
    _LOG.warning("%s: %s (failOnDataLoss is false: continuing with the available records)", loss.place, loss.summary)


def _handle_error(client: Client, options: SourceOptions, offset_range: OffsetRange, fetched: Fetched) -> int:
    """The offset at which to continue after a failed fetch. Raises DataLoss, BrokerRefused."""
    partition = offset_range.topic_partition
    if fetched.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
        raise BrokerRefused(fetched.error_code, f"fetch from {partition} at offset {fetched.position}")
    planner = OffsetPlanner(client, options)
    earliest, end = (
        offsets[partition] for offsets in (planner.earliest([partition]), planner.high_watermarks([partition]))
    )
    if earliest > fetched.position:
        _report_loss(
            options, offset_range, fetched.position, earliest, "retention removed it while the query was running"
        )
        return earliest
    _report_loss(options, offset_range, fetched.position, end, "the log was truncated while it was read")
    return offset_range.end


def _decode(options: SourceOptions, offset_range: OffsetRange, fetched: Fetched) -> Iterator[pa.RecordBatch]:
    selection = Selection(
        offset_range.topic,
        offset_range.partition,
        start_offset=fetched.position,
        end_offset=offset_range.end,
        read_committed=options.read_committed,
        # A header may name the schema.
        include_headers=options.include_headers or bool(options.decode_registry),
    )
    decoded = decode(fetched.records, selection, fetched.aborted, piece_bytes=BATCH_BYTES)
    try:  # a loop variable would keep one batch alive while the next is decoded
        yield from map(partial(_with_types, options), filter(attrgetter("num_rows"), map(attrgetter("rows"), decoded)))
    except CorruptBatch as error:
        raise SparkSourceError(f"{offset_range.topic_partition}, from offset {fetched.position}: {error}") from error


def _with_types(options: SourceOptions, rows: pa.RecordBatch) -> pa.RecordBatch:
    rows = _with_microseconds(rows)
    return _with_text(rows) if options.value_as_text else rows


def _with_microseconds(rows: pa.RecordBatch) -> pa.RecordBatch:
    # Convert timestamps to Spark's microseconds; those out of range become null.
    timestamps = rows.column(_TIMESTAMP)
    try:
        micros = timestamps.cast(_SPARK_TIMESTAMP.type)
    except pa.ArrowInvalid:
        millis = timestamps.cast(pa.int64())
        in_range = pc.and_(
            pc.less_equal(millis, _MAX_TIMESTAMP_MS), pc.greater_equal(millis, pc.negate(_MAX_TIMESTAMP_MS))
        )
        micros = pc.if_else(in_range, timestamps, pa.scalar(None, timestamps.type)).cast(_SPARK_TIMESTAMP.type)
    return rows.set_column(_TIMESTAMP, _SPARK_TIMESTAMP, micros)


def _with_text(rows: pa.RecordBatch) -> pa.RecordBatch:
    # Values as text like ``CAST(value AS STRING)``: the same bytes, whether or not they are UTF-8.
    value = rows.column(_VALUE)
    text = pa.Array.from_buffers(pa.string(), len(value), value.buffers(), value.null_count, value.offset)
    return rows.set_column(_VALUE, pa.field("value", pa.string()), text)


@contextmanager
def malloc_memory() -> Iterator[None]:
    """Make Arrow allocate with malloc, and return free memory to the system at the end.

    Spark keeps the Python workers of finished tasks, and their free memory counts for the executor. One thread creates
    a reader's columns and another frees them; mimalloc, Arrow's default allocator, keeps such memory for the first
    thread. Returning it takes a millisecond or two, so it waits until the rows are read.
    """
    default_pool = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(default_pool)
        default_pool.release_unused()
        trim = _malloc_trim()
        if trim is not None:
            trim(0)


@cache
def _malloc_trim() -> Any:
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    trim.argtypes = [ctypes.c_size_t]
    trim.restype = ctypes.c_int
    return trim
