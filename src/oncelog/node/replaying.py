"""Reads an internal topic's log back into the machine that wrote it, a slice at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.base.ids import Offset, ProducerId
from oncelog.base.units import MIB
from oncelog.core.groups.shard import GroupShard
from oncelog.records.batch import BatchHeader, TruncatedBatch, iter_headers
from oncelog.records.control import end_transaction_marker_of
from oncelog.records.record import read_records

if TYPE_CHECKING:
    from oncelog.storage.log import PartitionLog

SLICE_BYTES: Final = MIB
"""What one slice reads: a few milliseconds of the loop."""
MAX_BATCH_BYTES: Final = 128 * MIB
"""Bound on what one batch may decompress to."""


def apply_slice(shard: GroupShard, log: PartitionLog, offset: Offset) -> Offset | None:
    """Apply the records from ``offset`` on, about ``SLICE_BYTES`` of them; where to go on, None at the end."""
    if offset >= log.high_watermark:
        return None
    read = log.read(offset, max_bytes=SLICE_BYTES, isolation_read_committed=False, minimum_one=True)
    data = b"".join(piece.file.read(piece.position, piece.size_bytes) for piece in read.chunks)
    following = offset
    try:
        for position, header in iter_headers(data):
            _apply_batch(shard, data, position, header)
            following = Offset(header.next_offset)
    except TruncatedBatch:
        pass  # a read may end inside a batch; the next slice begins with it
    return following if following > offset else None


def _apply_batch(shard: GroupShard, data: bytes, position: int, header: BatchHeader) -> None:
    producer_id = ProducerId(header.producer_id)
    if header.is_control:
        for record in read_records(data, position, header, MAX_BATCH_BYTES):
            marker = end_transaction_marker_of(record)
            if marker is not None:
                shard.apply_end_transaction(producer_id, committed=marker.committed)
        return
    for record in read_records(data, position, header, MAX_BATCH_BYTES):
        if record.key is None:
            continue
        if header.is_transactional:
            shard.apply(record.key, record.value, producer_id=producer_id)
        else:
            shard.apply(record.key, record.value)
