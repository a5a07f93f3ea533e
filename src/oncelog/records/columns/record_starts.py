"""The start position of each record, the only sequential part of decoding.

Invariants, checked for every batch before its positions are used:

1. record 0 begins at the batch's first byte; record i+1 begins where record i ends, by its length varint;
2. the last record ends exactly at the batch's end.

So the positions are exact in each of the three ways of finding them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from oncelog.records.batch import CorruptBatch
from oncelog.records.columns.varint_columns import VALUE, WIDTH, Bytes, ByteView, Positions, read_varint

_RECORD_SIZE: Final = np.where((WIDTH > 0) & (VALUE >= 0), VALUE + WIDTH, np.int32(0))
"""First two bytes of a record → its size with its length varint; 0 if two bytes do not determine it."""

_TOGETHER_FROM: Final = 24
"""Batches from which a numpy step over all of them is cheaper than Python steps."""
_SHORT_RUN: Final = 32
"""Records below which a run costs more than stepping through it."""
_FIRST_WINDOW: Final = 64
"""Records ahead in a batch's first search for a run."""
_MIN_RUN_GAIN: Final = 8
"""Average records per search below which the batches go on together."""
_WINDOW_GROWTH: Final = 16


@dataclass(frozen=True, slots=True)
class Spans:
    """The records of several batches in one buffer: each batch's first byte, end (exclusive), and number of records (at
    least 1)."""

    start: Positions
    end: Positions
    count: Positions

    @property
    def first_record(self) -> Positions:
        return np.concatenate(([0], np.cumsum(self.count)[:-1]))


def find_starts(view: ByteView, spans: Spans) -> Positions:
    """Positions of all records, in order. Raises CorruptBatch if a batch breaks an invariant."""
    starts = np.empty(int(spans.count.sum()), np.int64)
    first = spans.first_record
    left: Sequence[int] = range(len(first))
    if len(left) >= _TOGETHER_FROM:
        left = _advance_in_runs(view, spans, first, starts)
    if len(left) >= _TOGETHER_FROM:
        remaining = np.array(left, np.int64)
        several = Spans(spans.start[remaining], spans.end[remaining], spans.count[remaining])
        left = remaining[_advance_together(view, several, first[remaining], starts)].tolist()
    for batch in left:
        begin, count = int(first[batch]), int(spans.count[batch])
        _advance_alone(view.bytes, int(spans.start[batch]), int(spans.end[batch]), starts[begin : begin + count])
    return starts


def _advance_in_runs(view: ByteView, spans: Spans, first: Positions, starts: Positions) -> list[int]:
    """Fill ``starts`` run by run for all batches at once. Returns the unfinished batches."""
    state = np.stack([np.arange(len(first)), spans.start, spans.count, first, spans.end])
    last_pair, window = len(view.pairs) - 1, _FIRST_WINDOW
    # If the next m length varints at a constant stride are the same bytes, these are m records, by induction. All
    # batches search for their next run at once, further ahead each time, while runs are long.
    unfinished: list[int] = []  # their entries in ``starts`` are overwritten later
    while state.shape[1]:
        batch, position, left, slot, end = state  # views: in-place changes update the state
        pair = view.pairs[position]
        size = _RECORD_SIZE[pair]
        fitting = np.where(size > 0, np.minimum((end - position) // np.maximum(size, 1), left), 0)
        if not fitting.all():
            unfinished += batch[fitting == 0].tolist()
            state = state[:, fitting > 0]
            continue
        mean = int(fitting.sum()) // len(batch)
        steps = np.arange(min(window, int(fitting.max()), _FIRST_WINDOW + 2 * mean))
        # A matrix with a row per batch: positions of its next records if all are as long as the next one.
        records = position[:, None] + size[:, None] * steps
        within = steps < fitting[:, None]
        same = view.pairs[np.minimum(records, last_pair)] == pair[:, None]
        same &= within
        run = np.where(same.all(axis=1), len(steps), same.argmin(axis=1))
        slots = slot[:, None] + steps
        starts[slots[same]] = records[same]  # entries behind a run's end are overwritten later
        position += run * size
        left -= run
        slot += run
        unfinished += batch[(left == 0) & (position != end)].tolist()
        state = state[:, left > 0]
        gained = int(run.sum())
        if gained < _MIN_RUN_GAIN * len(batch) and 2 * gained < int(within.sum()):
            unfinished += state[0].tolist()
            break
        window *= _WINDOW_GROWTH
    return unfinished


def _advance_together(view: ByteView, spans: Spans, first: Positions, starts: Positions) -> list[int]:
    """Fill ``starts`` one record of every batch per step. Returns the batches that missed their end."""
    # A table maps a record's first two bytes to its size. Batches that miss their end are repeated alone.
    # Longest first: the active batches are a prefix, and the loop ends when fewer than _TOGETHER_FROM are active.
    order = np.argsort(-spans.count, kind="stable")
    counts = spans.count[order]
    position, slot = spans.start[order], first[order]
    steps = int(counts[_TOGETHER_FROM - 1])
    active_at_step = np.searchsorted(-counts, -np.arange(1, steps + 1), side="right")
    last_pair = len(view.pairs) - 1
    for active in active_at_step.tolist():
        current, slots = position[:active], slot[:active]
        starts[slots] = current
        current += _RECORD_SIZE[view.pairs[current]]
        np.minimum(current, last_pair, out=current)  # a corrupt length may point anywhere
        slots += 1
    arrived = (position == spans.end[order]) & (counts <= steps)
    return sorted(order[~arrived].tolist())


def _advance_alone(data: Bytes, start: int, end: int, starts: Positions) -> None:
    """Fill ``starts`` (one entry per record) for the batch at ``data[start:end]``."""
    done, position, count = 0, start, len(starts)
    while done < count:
        size, records = _run_of_equal_records(data, position, end, count - done)
        if records < min(_SHORT_RUN, count - done):
            starts[done:] = _step_by_step(data[position:end].tobytes(), count - done)
            starts[done:] += position
            return
        starts[done : done + records] = np.arange(records) * size + position
        done += records
        position += records * size
    if position != end:
        raise CorruptBatch("the records of a batch do not end where the batch ends")


def _run_of_equal_records(data: Bytes, position: int, end: int, limit: int) -> tuple[int, int]:
    """(size, number) of the records from ``position`` on with equal length varints; number ≤ limit."""
    length, body = read_varint(data[position : min(end, position + 10)].tobytes(), 0)
    size = body + length
    if length < 0 or position + size > end:
        raise CorruptBatch(f"a record of {length} bytes is in a batch that has {end - position - body} bytes left")
    records = min(limit, (end - position) // size)
    region = data[position : position + records * size].reshape(records, size)
    different = (region[:, :body] != region[0, :body]).any(axis=1)
    return size, int(different.argmax()) if different.any() else records


@cache
def _record_sizes() -> list[int]:
    sizes: list[int] = _RECORD_SIZE.tolist()
    return sizes


def _step_by_step(data: bytes, count: int) -> npt.NDArray[np.int64]:
    """Positions of the ``count`` records that fill ``data``, one by one in Python: 10 M per second and core."""
    sizes, end = _record_sizes(), len(data)
    positions: list[int] = []
    position = 0
    data += b"\0"
    for _ in range(count):
        if position >= end:
            raise CorruptBatch(f"a batch claims {count} records and has {len(positions)}")
        positions.append(position)
        size = sizes[data[position] | data[position + 1] << 8]
        if size == 0:
            length, body = read_varint(data, position)
            if length < 0:
                raise CorruptBatch(f"a record has length {length}")
            size = body - position + length
        position += size
    if position != end:
        raise CorruptBatch("the records of a batch do not end where the batch ends")
    return np.array(positions, np.int64)
