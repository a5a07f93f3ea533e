"""Producer state as of an offset: the newest sound snapshot, then the batches after it.

Recovery does so when a log is opened, a truncation when its end moves back.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.core.producers.state import ProducerState
from oncelog.records.batch import CorruptBatch
from oncelog.storage.segment.batch_scan import SCAN_CHUNK
from oncelog.storage.segment.segment import Segment
from oncelog.storage.snapshots.snapshot_files import Snapshots
from oncelog.storage.transactions.producer_updates import replayed


def rebuild_producers(
    producers: ProducerState,
    snapshots: Snapshots,
    segments: Sequence[Segment],
    first_offset: int,
    end_offset: int,
    expired_before: int,
) -> None:
    """Set ``producers`` to what they were at ``end_offset``, where the last of ``segments`` ends.

    Snapshots before ``first_offset`` and after ``end_offset`` are removed; one that a segment should begin with and
    that is lost is written again while its state is at hand. Producers whose last batch is at or before
    ``expired_before`` (milliseconds) and that have nothing open are left out of what a snapshot says.
    """
    snapshots.load_into(producers, first_offset, end_offset, expired_before)
    start = producers.end_offset
    for index, segment in enumerate(segments):
        end = segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
        if end <= start:
            continue
        if segment.base_offset > start:
            replace_snapshot(producers, snapshots, segment.base_offset, first_offset)
        if segment.size_bytes:
            _replay(producers, segment, start)
    producers.end_offset = end_offset


def replace_snapshot(producers: ProducerState, snapshots: Snapshots, offset: int, first_offset: int) -> None:
    """Write the snapshot at ``offset`` again, and sync it, while what it says is still known."""
    producers.end_offset = offset
    snapshots.take(producers, first_offset)
    file = snapshots.file_at(offset)
    if file is not None:
        file.sync()


def _replay(producers: ProducerState, segment: Segment, start: int) -> None:
    for at, header in segment.batches(segment.start_of(start), chunk_size=SCAN_CHUNK):
        if header.base_offset < start or header.producer_id < 0:
            continue
        data = segment.file.read(at, header.size_bytes) if header.is_control else b""
        try:
            update = replayed(producers, header, data, 0)
        except CorruptBatch:
            continue
        if update is not None:
            producers.commit(update)
