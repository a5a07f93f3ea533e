"""One task: a range of offsets of one partition → Arrow record batches, on an executor.

Rules: every record of the range that is in the log comes once, in offset order; a range ends at its end offset, not
at a number of records, because markers and compaction leave gaps. Waiting without progress ends in an error. Fetching
and decoding are one group of batches ahead of Spark, which takes batches of about 2 MB: small enough to stay in its
pools of memory, large enough to be cheap.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from oncelog.base.errors import ErrorCode
from oncelog.base.units import MIB
from oncelog.client.errors import BrokerRefused
from oncelog.records.batch import CorruptBatch
from oncelog.records.columns import Selection, column_schema, decode
from oncelog.spark.ahead import ahead
from oncelog.spark.errors import DataLoss, SparkSourceError
from oncelog.spark.offsets import Planner, open_client
from oncelog.spark.options import SourceOptions
from oncelog.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from oncelog.client.blocking import Client, Fetched

_TIMESTAMP: Final = column_schema(include_headers=False).get_field_index("timestamp")
_VALUE: Final = column_schema(include_headers=False).get_field_index("value")
BATCH_BYTES: Final = 2 * MIB
"""About what Spark gets at a time."""
_GROUPS_AHEAD: Final = 1
_SPARK_TIMESTAMP: Final = pa.field("timestamp", pa.timestamp("us", "UTC"))


def read_range(options: SourceOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The records of a range, with Spark's types. Raises DataLoss, SparkSourceError, ClientError."""
    for group in ahead(_groups(options, wanted), _GROUPS_AHEAD):
        yield from _pieces(group)


def _groups(options: SourceOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The records of a range as they are decoded, in pieces of about 4 MB."""
    with open_client(options) as client:
        position = wanted.start
        while position < wanted.end:
            for fetched in _fetch(client, options, wanted, position):
                if fetched.error_code:
                    position = _after_refusal(client, options, wanted, fetched)
                    break
                yield from _decode(options, wanted, fetched)
                position = fetched.next_offset
            else:
                return


def _fetch(client: Client, options: SourceOptions, wanted: OffsetRange, position: int) -> Iterator[Fetched]:
    """What the leader has from ``position`` to the range's end; an error after a while without progress."""
    partition = wanted.topic_partition
    last_progress = time.monotonic()
    for fetched in client.fetch({partition: position}, until={partition: wanted.end}, settings=options.fetch):
        yield fetched
        now = time.monotonic()
        if fetched.next_offset > fetched.position:
            last_progress = now
            continue
        end = fetched.last_stable_offset if options.read_committed else fetched.high_watermark
        if end < wanted.end and options.fail_on_data_loss:
            raise DataLoss(partition, wanted.end, end, "the log became shorter while it was read")
        if end <= fetched.position:
            return
        if (now - last_progress) * 1000 > options.no_progress_timeout_ms:
            raise SparkSourceError(
                f"Cannot fetch record for offset {fetched.position} of {partition} "
                f"in {options.no_progress_timeout_ms} milliseconds"
            )


def _after_refusal(client: Client, options: SourceOptions, wanted: OffsetRange, fetched: Fetched) -> int:
    """Where to go on after an error code, or an exception that says what is lost."""
    partition = wanted.topic_partition
    if fetched.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
        raise BrokerRefused(fetched.error_code, f"fetch from {partition} at offset {fetched.position}")
    earliest = Planner(client, options).earliest([partition])[partition]
    if options.fail_on_data_loss:
        raise DataLoss(partition, fetched.position, earliest, "retention removed it while the query was running")
    return earliest if earliest > fetched.position else wanted.end


def _decode(options: SourceOptions, wanted: OffsetRange, fetched: Fetched) -> Iterator[pa.RecordBatch]:
    selection = Selection(
        wanted.topic,
        wanted.partition,
        start_offset=fetched.position,
        end_offset=wanted.end,
        read_committed=options.read_committed,
        include_headers=options.include_headers,
    )
    try:
        for decoded in decode(fetched.records, selection, fetched.aborted):
            if decoded.rows.num_rows:
                rows = _with_microseconds(decoded.rows)
                yield _with_text(rows) if options.value_as_text else rows
    except CorruptBatch as error:
        raise SparkSourceError(f"{wanted.topic_partition}, from offset {fetched.position}: {error}") from error


def _pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of about ``BATCH_BYTES``; nothing is copied."""
    count = -(-rows.nbytes // BATCH_BYTES)
    step = -(-rows.num_rows // count)
    return (rows.slice(first, step) for first in range(0, rows.num_rows, step))


def _with_microseconds(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Spark's timestamps are microseconds; a time it cannot express is an error, not another time."""
    try:
        timestamps = rows.column(_TIMESTAMP).cast(_SPARK_TIMESTAMP.type)
    except pa.ArrowInvalid:
        raise SparkSourceError("a record's timestamp is too far from 1970 for microseconds in 64 bits") from None
    return rows.set_column(_TIMESTAMP, _SPARK_TIMESTAMP, timestamps)


def _with_text(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Values as text, as ``CAST(value AS STRING)`` has them: the same bytes, whether they are UTF-8 or not."""
    value = rows.column(_VALUE)
    text = pa.Array.from_buffers(pa.string(), len(value), value.buffers(), value.null_count, value.offset)
    return rows.set_column(_VALUE, pa.field("value", pa.string()), text)
