"""Merges state batches: of two that overlap, the one delivered more often wins, then the one in the later state.

The result is in order, without overlaps, and neighbours in the same state are one batch, as Apache Kafka's
``PersisterStateBatchCombiner`` leaves it.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from oncelog.base.ids import NO_OFFSET, Offset
from oncelog.records.internal.share_state_records import StateBatch


def combined(present: Sequence[StateBatch], changed: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """``present`` with ``changed`` merged into it, cut at the start offset (−1: nowhere). ``present`` is a result of
    this function: only the batches near the changed ones are looked at.
    """
    new = _cut(changed, start_offset)
    old = present
    if start_offset != NO_OFFSET:
        first = bisect_left(present, start_offset, key=lambda batch: batch.last_offset)
        old = [*_cut(present[first : first + 1], start_offset), *present[first + 1 :]]
    if not new:
        return tuple(old)
    # A neighbour may become one with a changed batch, so it is included.
    low = bisect_left(old, min(batch.first_offset for batch in new) - 1, key=lambda batch: batch.last_offset)
    high = bisect_right(old, max(batch.last_offset for batch in new) + 1, key=lambda batch: batch.first_offset)
    return (*old[:low], *_swept([*old[low:high], *new]), *old[high:])


def _cut(batches: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """The parts from the start offset on. A batch that ends before it begins is damage, and left out."""
    kept = []
    for batch in batches:
        first = batch.first_offset if start_offset == NO_OFFSET else max(batch.first_offset, start_offset)
        if batch.last_offset >= first:
            kept.append(batch if first == batch.first_offset else batch._replace(first_offset=Offset(first)))
    return kept


def _swept(batches: list[StateBatch]) -> list[StateBatch]:
    """Sweep over the offsets where batches begin and end; the strongest of those that cover a stretch gives its
    state."""
    batches.sort(key=lambda batch: batch.first_offset)
    bounds = sorted({bound for batch in batches for bound in (batch.first_offset, batch.last_offset + 1)})
    out: list[StateBatch] = []
    # The batches that cover the present offset, the strongest first; those that have ended leave when they come up.
    active: list[tuple[int, int, int]] = []
    index = 0
    for first, end in pairwise(bounds):
        while index < len(batches) and batches[index].first_offset == first:
            batch = batches[index]
            heapq.heappush(active, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))
            index += 1
        while active and active[0][2] < first:
            heapq.heappop(active)
        if active:
            count, state = -active[0][0], -active[0][1]
            last = out[-1] if out else None
            if last is not None and last[1:] == (first - 1, state, count):
                out[-1] = last._replace(last_offset=Offset(end - 1))
            else:
                out.append(StateBatch(Offset(first), Offset(end - 1), state, count))
    return out
