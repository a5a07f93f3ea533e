"""Effects of batches on the producer state: data batches by their header, markers by their record."""

from __future__ import annotations

from typing import NamedTuple

from oncelog.base.units import INT32_MAX
from oncelog.core.producers.state import ProducerState, Update
from oncelog.ports import Buffer
from oncelog.records.batch import BatchHeader, CorruptBatch
from oncelog.records.control import end_transaction_marker_of
from oncelog.records.record import read_records


class Marker(NamedTuple):
    """A transaction marker, from its control record."""

    committed: bool
    coordinator_epoch: int
    timestamp: int


def read_marker(header: BatchHeader, data: Buffer, position: int = 0) -> Marker:
    """Raises CorruptBatch without a marker."""
    for record in read_records(data, position, header, INT32_MAX):
        marker = end_transaction_marker_of(record)
        if marker is None:
            break
        return Marker(marker.committed, marker.coordinator_epoch, record.timestamp)
    raise CorruptBatch("control batch of a producer without a transaction marker")


def prepare_marker(
    producers: ProducerState,
    header: BatchHeader,
    marker: Marker,
    base_offset: int,
    *,
    check: bool,
    transaction_version: int = 0,
) -> Update:
    """The update for a control batch with ``marker``. Raises ProducerRefusal if ``check``."""
    return producers.prepare_marker(
        header,
        base_offset,
        committed=marker.committed,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp=marker.timestamp,
        check=check,
        transaction_version=transaction_version,
    )


def replayed(producers: ProducerState, header: BatchHeader, data: Buffer, position: int) -> Update | None:
    """The unchecked update of a batch in the log; None for an emptied control batch. Raises CorruptBatch for a control
    batch without a transaction marker."""
    if not header.is_control:
        return producers.prepare_data(header, header.base_offset, check=False)
    if header.record_count == 0:
        return None
    return prepare_marker(producers, header, read_marker(header, data, position), header.base_offset, check=False)
