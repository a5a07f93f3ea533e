"""Records that a share consumer has acquired, as Arrow record batches, without an object for each record."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from oncelog.client.machine.consumed_records import UnreadableRecords
from oncelog.client.machine.share.values import AcquiredBatches
from oncelog.records.columns.decode import Selection, decode
from oncelog.records.errors import CorruptBatch

_DELIVERY_COUNT = pa.field("deliveryCount", pa.int16())


def read_acquired_arrow(batches: AcquiredBatches, *, include_headers: bool = False) -> Iterator[pa.RecordBatch]:
    """The acquired records of ``ShareConsumer.poll_batches``, with the columns of ``read_arrow`` and ``deliveryCount``.

    Raises UnreadableRecords for a damaged batch: ``reject`` these batches, or they come again.
    """
    for first, last, count in batches.acquired:
        topic, partition = batches.partition
        selection = Selection(topic, partition, first, last + 1, include_headers=include_headers)
        try:
            for decoded in decode(batches.records, selection):
                if rows := decoded.rows.num_rows:
                    yield decoded.rows.append_column(_DELIVERY_COUNT, pa.array(np.full(rows, count, np.int16)))
        except CorruptBatch as error:
            text = f"records {first} to {last} of {batches.partition} cannot be read: {error}"
            raise UnreadableRecords(text) from error
