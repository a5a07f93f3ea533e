"""Segments that leave a log: their files are renamed at once and removed after a delay.

Deleting happens in two steps, as in Apache Kafka: the files are renamed to ``.deleted`` and the segment leaves the log
at once; ``file.delete.delay.ms`` later a job removes them. A reader that has a range of it reads on.
"""

from __future__ import annotations

from collections.abc import Iterable

from oncelog.storage.file_names import DELETED
from oncelog.storage.log.partition_log import PartitionLog
from oncelog.storage.segment.segment import Segment


def retire(log: PartitionLog, gone: Iterable[Segment], now_ms: int, replaced_by: Segment | None = None) -> None:
    """Mark the files of segments that have left the log as deleted, in the order given; keep the snapshot that the
    segment in their place begins with."""
    for segment in gone:
        log.budget.forget(segment)
        segment.rename(DELETED)
        if replaced_by is None or segment.base_offset != replaced_by.base_offset:
            log.snapshots.remove(segment.base_offset)
        log.retired.append((now_ms + log.config.file_delete_delay_ms, segment))
