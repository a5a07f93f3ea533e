"""Selects the part of a log that is worth compacting now.

Dirty records are those that compaction has not covered. Never compacted: the active segment, unstable records, records
younger than ``min.compaction.lag.ms``. A log is due if more than ``min.cleanable.dirty.ratio`` of its cleanable part is
dirty, or its oldest dirty record is older than ``max.compaction.lag.ms`` (KIP-354).
"""

from __future__ import annotations

from typing import NamedTuple

from oncelog.base.units import INT64_MAX
from oncelog.storage.log.partition_log import PartitionLog
from oncelog.storage.segment.segment import Segment


class Cleanable(NamedTuple):
    """The offsets [first_dirty, upper_bound) are dirty and may be cleaned."""

    first_dirty: int
    upper_bound: int
    ratio: float
    overdue: bool


def cleanable(log: PartitionLog, now_ms: int) -> Cleanable | None:
    """The part of a log to clean; None if it is empty or not worth it yet."""
    config = log.config
    sealed = log.segments.sealed()
    if not config.compact or not sealed:
        return None
    start, end = log.log_start_offset, log.log_end_offset
    first_dirty = log.cleaned_offset if start <= log.cleaned_offset <= end else start
    dirty = [segment for segment in sealed if log.segments.end_of(_index(log, segment), end) > first_dirty]
    upper = min(log.last_stable_offset, log.segments.active.base_offset)
    if config.min_compaction_lag_ms > 0:
        young = now_ms - config.min_compaction_lag_ms
        upper = min([upper, *(segment.base_offset for segment in dirty if _may_be_young(segment, young))])
    allowed = [segment for segment in dirty if log.segments.end_of(_index(log, segment), end) <= upper]
    dirty_bytes = sum(segment.size_bytes for segment in allowed)
    if not dirty_bytes:
        return None
    clean_bytes = sum(segment.size_bytes for segment in sealed if segment.base_offset < first_dirty)
    clean_bytes -= sum(segment.size_bytes for segment in allowed if segment.base_offset < first_dirty)
    ratio = dirty_bytes / (dirty_bytes + clean_bytes)
    overdue = _overdue(dirty, now_ms, config.max_compaction_lag_ms)
    if not overdue and ratio <= config.min_cleanable_dirty_ratio:
        return None
    return Cleanable(first_dirty, log.segments.end_of(_index(log, allowed[-1]), end), ratio, overdue)


def _may_be_young(segment: Segment, young: int) -> bool:
    """True if the segment has records after ``young``, or headers that may hide some."""
    return segment.max_timestamp[0] > young or segment.may_hide(young + 1)


def _index(log: PartitionLog, segment: Segment) -> int:
    return log.segments.floor(segment.base_offset)


def _overdue(dirty: list[Segment], now_ms: int, max_lag_ms: int) -> bool:
    if max_lag_ms == INT64_MAX:
        return False
    timestamps = [timestamp for segment in dirty if (timestamp := segment.first_batch_timestamp()) > 0]
    return bool(timestamps) and min(timestamps) < now_ms - max_lag_ms


def group_by_size(
    segments: list[Segment], ends: list[int], segment_bytes: int, index_bytes: int
) -> list[list[Segment]]:
    """Neighbours that fit into one segment together; ``ends`` are the segments' end offsets."""
    groups: list[list[Segment]] = []
    size = entries = 0
    for segment, end in zip(segments, ends, strict=True):
        more = segment.index_bytes()
        fits = (
            groups
            and size + segment.size_bytes <= segment_bytes
            and entries + more <= index_bytes
            and end - 1 - groups[-1][0].base_offset < 1 << 31
        )
        if fits:
            groups[-1].append(segment)
            size += segment.size_bytes
            entries += more
        else:
            groups.append([segment])
            size, entries = segment.size_bytes, more
    return groups
