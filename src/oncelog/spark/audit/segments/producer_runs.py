"""Batch headers → facts about producers: runs of data batches, and markers. All in numpy.

A run is a producer's consecutive data batches of one epoch and kind, each beginning with the sequence after the one
before; markers end runs, and so do the offsets of producer snapshots, so that a snapshot can be compared with the log
up to it. Runs end with the piece they are in: ``history`` does not mind.

Markers written by any broker are 78 bytes of one shape, and are decoded all at once; others one by one.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from oncelog.base.ids import INTERNAL_TOPICS
from oncelog.base.units import INT32_MAX
from oncelog.records.batch import CODEC_MASK, CONTROL, HEADER_SIZE, read_header
from oncelog.records.control import end_transaction_marker_of
from oncelog.records.errors import CorruptBatch
from oncelog.records.record import read_records
from oncelog.spark.audit.audit_plan import SegmentTask
from oncelog.spark.audit.model import Fact, Outcome, Rank, schema_of
from oncelog.spark.audit.segments.batch_table import Flags, Integers, Piece

_SCHEMA: Final = schema_of(Fact)
_MAX_MARKER_BYTES: Final = 64 << 10
_MARKER_BODY: Final = 17
_MARKER_BYTES: Final = HEADER_SIZE + _MARKER_BODY
_SHAPE: Final = np.frombuffer(b"\x20\0\0\0\x08\0\0\0\0\x0c\0\0\0\0\0\0\0", np.uint8)
"""A marker's record: length 16, no attributes, deltas of 0, key of 4 (version, type), value of 6 (version, epoch)."""
_FIXED: Final = np.array([0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 16])
"""Positions in which all such markers are alike; the type is at 8, the coordinator's epoch from 12 on."""
_TYPE: Final = 8
_EPOCH: Final = 12
OTHER_CONTROL: Final = -2
"""A control record that ends no transaction."""


def producer_facts(piece: Piece, task: SegmentTask) -> pa.RecordBatch | None:
    """The facts of one piece, or None when no producer is in it."""
    of_producers = np.flatnonzero(
        (piece.producer_id >= 0) & (piece.last_offset >= piece.base_offset) & attributable(piece)
    )
    if not len(of_producers):
        return None
    outcome, coordinator_epoch = markers(piece, of_producers)
    keep = outcome != OTHER_CONTROL
    if not keep.all():
        of_producers, outcome, coordinator_epoch = of_producers[keep], outcome[keep], coordinator_epoch[keep]
        if not len(of_producers):
            return None
    order = np.argsort(piece.producer_id[of_producers], kind="stable")
    chosen = of_producers[order]
    starts = np.flatnonzero(_begins(piece, chosen, task))
    ends = np.append(starts[1:], len(chosen)) - 1
    return _rows(piece, chosen, outcome[order], coordinator_epoch[order], starts, ends, task)


def attributable(piece: Piece) -> Flags:
    """Flags of the batches that are by the producer they name: all sound ones, and of those with a wrong checksum the
    data whose sequence numbers lie between those of sound batches of the same producer, epoch and attributes. The
    others may have been of any producer, or markers."""
    flags = piece.sound.copy()
    for at in np.flatnonzero(~flags).tolist():
        whole = piece.record_count[at] == piece.last_offset[at] - piece.base_offset[at] + 1
        if piece.attributes[at] & CONTROL or piece.base_sequence[at] < 0 or not whole:
            continue
        alike = (piece.producer_id == piece.producer_id[at]) & (piece.producer_epoch == piece.producer_epoch[at])
        near = np.flatnonzero(alike & piece.sound & (piece.attributes == piece.attributes[at]))
        flags[at] = _follows(piece, near[near < at][-1:], at) or _follows(piece, near[near > at][:1], at)
    return flags


def _follows(piece: Piece, near: Integers, at: int) -> bool:
    """True if the sequence numbers of two batches, ``at`` and the one in ``near``, follow each other."""
    if not len(near):
        return False
    first, second = sorted((int(near[0]), at))
    length = piece.last_offset[first] - piece.base_offset[first] + 1
    return bool((piece.base_sequence[first] + length) & INT32_MAX == piece.base_sequence[second])


def _begins(piece: Piece, chosen: Integers, task: SegmentTask) -> Flags:
    """Flags of the batches (by producer, then in order) that are the first of a fact."""
    control = piece.is_control[chosen]
    attributes_differ = np.diff(piece.is_transactional[chosen].astype(np.int8)) != 0
    begins = np.ones(len(chosen), np.bool_)
    begins[1:] = np.diff(piece.producer_id[chosen]) != 0
    begins[1:] |= np.diff(piece.producer_epoch[chosen]) != 0
    begins[1:] |= attributes_differ | control[1:] | control[:-1]
    if not task.cleaned:  # where batches are missing, a marker may be
        goes_on = piece.base_offset[1:] == piece.last_offset[:-1] + 1
        before = np.concatenate(([0], np.cumsum(~goes_on)))
        begins[1:] |= np.diff(before[chosen]) != 0
    if task.topic not in INTERNAL_TOPICS:
        sequence = piece.base_sequence[chosen]
        following = (sequence + piece.last_offset[chosen] - piece.base_offset[chosen] + 1) & INT32_MAX
        begins[1:] |= sequence[1:] != following[:-1]
    if task.snapshots:
        stretch = np.searchsorted(np.array(task.snapshots, np.int64), piece.base_offset[chosen], side="right")
        begins[1:] |= np.diff(stretch) != 0
    return begins


def _rows(
    piece: Piece,
    chosen: Integers,
    outcome: Integers,
    coordinator_epoch: Integers,
    starts: Integers,
    ends: Integers,
    task: SegmentTask,
) -> pa.RecordBatch:
    count = len(starts)
    first, last = chosen[starts], chosen[ends]
    control = piece.is_control[first]
    sequence = piece.base_sequence
    last_sequence = (sequence[last] + piece.last_offset[last] - piece.base_offset[last]) & INT32_MAX
    columns: dict[str, Any] = {
        "topic": pa.repeat(task.topic, count),
        "partition": np.full(count, task.partition),
        "replica": np.full(count, task.replica),
        "producer_id": piece.producer_id[first],
        "offset": piece.base_offset[first],
        "rank": np.where(control, int(Rank.MARKER), int(Rank.DATA)),
        "last_offset": piece.last_offset[last],
        "epoch": piece.producer_epoch[first],
        "first_sequence": sequence[first],
        "last_sequence": np.where(sequence[last] < 0, -1, last_sequence),
        "batches": ends - starts + 1,
        "records": np.add.reduceat(piece.record_count[chosen], starts),
        "size_bytes": np.add.reduceat(piece.size_bytes[chosen], starts),
        "transactional": piece.is_transactional[first],
        "outcome": outcome[starts],
        "coordinator_epoch": coordinator_epoch[starts],
        "first_timestamp": piece.max_timestamp[first],
        "last_timestamp": np.maximum.reduceat(piece.max_timestamp[chosen], starts),
        "value": np.full(count, -1),
        "name": pa.repeat("", count),
        "place": pa.repeat("", count),
    }
    arrays = [columns[field.name] for field in _SCHEMA]
    return pa.RecordBatch.from_arrays(
        [
            one if isinstance(one, pa.Array) else pa.array(one, field.type)
            for one, field in zip(arrays, _SCHEMA, strict=True)
        ],
        schema=_SCHEMA,
    )


def markers(piece: Piece, chosen: Integers) -> tuple[Integers, Integers]:
    """Outcome and coordinator epoch of each batch chosen: OPEN for data, UNKNOWN for unsound or emptied markers."""
    outcome = np.full(len(chosen), int(Outcome.OPEN), np.int64)
    coordinator_epoch = np.full(len(chosen), -1, np.int64)
    which = np.flatnonzero(piece.is_control[chosen])
    if not len(which):
        return outcome, coordinator_epoch
    outcome[which] = int(Outcome.UNKNOWN)
    batch = chosen[which]
    sound = piece.sound[batch]
    usual = sound & (piece.size_bytes[batch] == _MARKER_BYTES) & ((piece.attributes[batch] & CODEC_MASK) == 0)
    if usual.any():
        bodies = _bodies(piece, batch[usual])
        alike = (bodies[:, _FIXED] == _SHAPE[_FIXED]).all(axis=1) & (bodies[:, _TYPE] <= 1)
        usual[np.flatnonzero(usual)[~alike]] = False
        bodies = bodies[alike]
        outcome[which[usual]] = bodies[:, _TYPE]
        coordinator_epoch[which[usual]] = np.ascontiguousarray(bodies[:, _EPOCH : _EPOCH + 4]).view(">i4")[:, 0]
    for index in np.flatnonzero(sound & ~usual).tolist():
        outcome[which[index]], coordinator_epoch[which[index]] = _unusual(piece, int(batch[index]))
    return outcome, coordinator_epoch


def _bodies(piece: Piece, batch: Integers) -> npt.NDArray[np.uint8]:
    anywhere = np.ndarray(len(piece.data) - _MARKER_BODY + 1, (np.void, _MARKER_BODY), piece.data, strides=(1,))
    taken = anywhere[piece.position[batch] - piece.start + HEADER_SIZE]
    return taken.view(np.uint8).reshape(len(batch), _MARKER_BODY)


def _unusual(piece: Piece, index: int) -> tuple[int, int]:
    at = int(piece.position[index]) - piece.start
    try:
        header = read_header(piece.data, at)
        for record in read_records(piece.data, at, header, _MAX_MARKER_BYTES):
            marker = end_transaction_marker_of(record)
            return (OTHER_CONTROL, -1) if marker is None else (int(marker.committed), marker.coordinator_epoch)
    except CorruptBatch:
        pass
    return int(Outcome.UNKNOWN), -1
