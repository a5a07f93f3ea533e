"""Fetched record batches of one partition → Arrow record batches with the columns of Spark's Kafka connector.

The records are exactly those of a Kafka consumer, in order; the offset of the next fetch passes control batches,
aborted data and offsets emptied by compaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from oncelog.base.ids import Offset
from oncelog.base.units import INT64_MAX
from oncelog.records.columns.arrow_arrays import (
    HEADERS,
    binary_column,
    constant_string_column,
    headers_column,
    number_column,
)
from oncelog.records.columns.batches import GROUP_BYTES, Group, read_groups
from oncelog.records.columns.fields import Fields, read_fields
from oncelog.records.columns.record_starts import find_starts
from oncelog.records.columns.varint_columns import ByteView

_COLUMNS: Final[list[pa.Field[Any]]] = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("ms", "UTC")),
    pa.field("timestampType", pa.int32()),
]
_FIXED_BYTES: Final = 36
"""Bytes of a row besides key, value and topic: its numbers, and an offset for each of the three."""
_SCHEMA: Final = pa.schema(_COLUMNS)
_SCHEMA_WITH_HEADERS: Final = pa.schema([*_COLUMNS, pa.field("headers", HEADERS)])


def column_schema(*, include_headers: bool) -> pa.Schema:
    """The schema of :func:`decode`'s rows; ``timestamp`` in milliseconds, ``timestampType`` 0 create, 1 append."""
    return _SCHEMA_WITH_HEADERS if include_headers else _SCHEMA


@dataclass(frozen=True, slots=True)
class Selection:
    """Offsets from ``start_offset`` (inclusive) to ``end_offset`` (exclusive) of a partition."""

    topic: str
    partition: int
    start_offset: int = 0
    end_offset: int = INT64_MAX
    read_committed: bool = False
    include_headers: bool = False


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows (maybe none), and the offset after everything read for them."""

    rows: pa.RecordBatch
    next_offset: Offset


def decode(
    records: bytes | bytearray | memoryview,
    selection: Selection,
    aborted: Iterable[tuple[int, int]] = (),
    *,
    piece_bytes: int = GROUP_BYTES,
) -> Iterator[Decoded]:
    """Decode the ``records`` of one partition of one fetch response, in pieces of about ``piece_bytes`` of columns.

    ``aborted`` is the response's list of (producer id, first offset). Yields at least one item if the buffer has a
    whole batch; ``next_offset`` rises from item to item, and reaches ``end_offset`` once no requested record is left.
    Raises CorruptBatch if the bytes contradict themselves; earlier items are valid then.
    """
    groups = read_groups(memoryview(records), selection, aborted)
    # The variable of a loop would hold megabytes: a group and its rows, while the next group is made.
    return chain.from_iterable(map(partial(_decode_group, selection, piece_bytes), groups))


def _decode_group(selection: Selection, piece_bytes: int, group: Group) -> Iterator[Decoded]:
    """The rows of a group; columns are copied piece by piece, on demand."""
    schema = column_schema(include_headers=selection.include_headers)
    view, next_offset = group.view, group.next_offset
    fields = _requested_fields(group, selection)
    del group
    if fields is None:
        yield Decoded(_no_rows(schema), next_offset)
        return
    count = len(fields.offset)
    step = -(-count // max(1, round(_size_of_rows(fields, selection) / piece_bytes)))
    for first in range(0, count - step, step):
        piece = fields.select(slice(first, first + step))
        yield Decoded(_to_arrow(view, piece, selection, schema), Offset(int(piece.offset[-1]) + 1))
    last = fields.select(slice((count - 1) // step * step, count))
    yield Decoded(_to_arrow(view, last, selection, schema), next_offset)


def _size_of_rows(fields: Fields, selection: Selection) -> int:
    contents = sum(int(np.maximum(column.length, 0).sum()) for column in (fields.key, fields.value))
    return contents + len(fields.offset) * (_FIXED_BYTES + len(selection.topic))


def _requested_fields(group: Group, selection: Selection) -> Fields | None:
    if not len(group.spans.count):
        return None
    starts = find_starts(group.view, group.spans)
    fields = read_fields(group.view, starts, group.spans, group.batch_headers)
    requested = (fields.offset >= selection.start_offset) & (fields.offset < selection.end_offset)
    if not requested.all():
        fields = fields.select(requested)
    return fields if len(fields.offset) else None


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _to_arrow(view: ByteView, fields: Fields, selection: Selection, schema: pa.Schema) -> pa.RecordBatch:
    count = len(fields.offset)
    columns = [
        binary_column(view, fields.key),
        binary_column(view, fields.value),
        constant_string_column(selection.topic, count),
        number_column(np.full(count, selection.partition, np.int32), pa.int32()),
        number_column(fields.offset, pa.int64()),
        number_column(fields.timestamp, pa.timestamp("ms", "UTC")),
        number_column(fields.timestamp_type, pa.int32()),
    ]
    if selection.include_headers:
        columns.append(headers_column(view, fields))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
