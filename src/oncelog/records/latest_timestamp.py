"""The latest timestamp of a batch whose header may be wrong.

Such a batch hides its records from searches by time, and looks old to retention.
"""

from __future__ import annotations

from oncelog.base.units import INT64_MAX
from oncelog.records.batch import DELETE_HORIZON, LOG_APPEND_TIME, BatchHeader, Buffer
from oncelog.records.errors import CorruptBatch
from oncelog.records.inspection import Inspection
from oncelog.records.record import records_data


# Older versions of the broker believed the producer, and a widespread client sent −1 until March 2025.
def hides_timestamps(header: BatchHeader) -> bool:
    """True if the largest timestamp in the header is impossible."""
    return (
        header.max_timestamp < header.base_timestamp
        and header.record_count > 0
        # There both fields have other meanings.
        and not header.attributes & (LOG_APPEND_TIME | DELETE_HORIZON)
    )


def latest_timestamp(buffer: Buffer, position: int, header: BatchHeader, max_bytes: int) -> int:
    """The latest timestamp of the batch at ``position``: the header's if possible, else from the records."""
    if not hides_timestamps(header):
        return header.max_timestamp
    try:
        inspection = Inspection(records_data(buffer, position, header, max_bytes), header.record_count)
        inspection.advance(header.record_count)
    except CorruptBatch:
        return header.base_timestamp  # unreadable for any reader, or larger than the caller allows
    return min(max(header.max_timestamp, header.base_timestamp + inspection.latest_delta()), INT64_MAX)
