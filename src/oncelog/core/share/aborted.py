"""Records of aborted transactions, which groups that read committed records never see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from oncelog.base.ids import Offset
from oncelog.core.share.model import AcquiredBatch
from oncelog.records.batch import BatchHeader

OffsetRange = tuple[Offset, Offset]
"""First and last offset, both inclusive."""


def aborted_ranges(headers: Iterable[BatchHeader], aborted: Iterable[tuple[int, int]]) -> list[OffsetRange]:
    """The batches of aborted transactions, given as (producer id, first offset)."""
    pending = sorted(((first, producer_id) for producer_id, first in aborted), reverse=True)
    producer_ids: set[int] = set()
    ranges: list[OffsetRange] = []
    for header in headers:
        if not header.has_producer_id:
            continue
        while pending and pending[-1][0] <= header.last_offset:
            producer_ids.add(pending.pop()[1])
        if header.producer_id not in producer_ids:
            continue
        if header.is_control:
            # The first marker after an aborted transaction's start is its own.
            producer_ids.discard(header.producer_id)
        elif header.is_transactional:
            ranges.append((Offset(header.base_offset), Offset(header.last_offset)))
    return ranges


def without(acquired: Iterable[AcquiredBatch], ranges: Sequence[OffsetRange]) -> list[AcquiredBatch]:
    """The acquired batches without the ranges; both are in order of offsets."""
    left: list[AcquiredBatch] = []
    index = 0
    for batch in acquired:
        while index < len(ranges) and ranges[index][1] < batch.first_offset:
            index += 1
        left += _pieces(batch, ranges, index)
    return left


def _pieces(batch: AcquiredBatch, ranges: Sequence[OffsetRange], index: int) -> Iterator[AcquiredBatch]:
    first = batch.first_offset
    while index < len(ranges) and ranges[index][0] <= batch.last_offset:
        range_first, range_last = ranges[index]
        if first < range_first:
            yield batch._replace(first_offset=first, last_offset=Offset(range_first - 1))
        first = Offset(range_last + 1)
        index += 1
    if first <= batch.last_offset:
        yield batch._replace(first_offset=first)
