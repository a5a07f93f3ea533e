"""Turns batch headers into facts about producers: runs of data batches, and markers. All in numpy.

A run is a series of one producer's data batches with one epoch, one kind and consecutive sequences. A marker ends a
run, and so does the offset of a producer snapshot; runs also end with the table that holds them.
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
from oncelog.spark.audit.model import Fact, Rank, TransactionOutcome, schema_of
from oncelog.spark.audit.segments.batch_table import BatchTable, Flags, Integers

_SCHEMA: Final = schema_of(Fact)
_MAX_MARKER_BYTES: Final = 64 << 10
_MARKER_BODY: Final = 17
# Markers written by any broker have this size (78 bytes) and one shape: decoded all at once, others one at a time.
_MARKER_BYTES: Final = HEADER_SIZE + _MARKER_BODY
# A marker's record: length 16, no attributes, deltas of 0, key of 4 (version, type), value of 6 (version, epoch).
_SHAPE: Final = np.frombuffer(b"\x20\0\0\0\x08\0\0\0\0\x0c\0\0\0\0\0\0\0", np.uint8)
# Positions at which all such markers are equal; the type is at 8, the coordinator's epoch from 12 on.
_FIXED: Final = np.array([0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 16])
_TYPE: Final = 8
_EPOCH: Final = 12
# A control record that ends no transaction.
OTHER_CONTROL: Final = -2


def producer_facts(batches: BatchTable, task: SegmentTask) -> pa.RecordBatch | None:
    of_producers = np.flatnonzero(
        (batches.producer_id >= 0) & (batches.last_offset >= batches.base_offset) & attributable(batches)
    )
    if not len(of_producers):
        return None
    outcome, coordinator_epoch = markers(batches, of_producers)
    keep = outcome != OTHER_CONTROL
    if not keep.all():
        of_producers, outcome, coordinator_epoch = of_producers[keep], outcome[keep], coordinator_epoch[keep]
        if not len(of_producers):
            return None
    # A stable sort keeps a producer's batches in log order.
    order = np.argsort(batches.producer_id[of_producers], kind="stable")
    rows = of_producers[order]
    starts = np.flatnonzero(_begins(batches, rows, task))
    ends = np.append(starts[1:], len(rows)) - 1
    return _rows(batches, rows, outcome[order], coordinator_epoch[order], starts, ends, task)


def attributable(batches: BatchTable) -> Flags:
    """Flags of the batches that certainly belong to the producer they name.

    Sound batches do. One with a wrong checksum does if its sequence numbers continue those of a sound batch with the
    same producer, epoch and attributes. Others may be any producer's, or markers.
    """
    flags = batches.sound.copy()
    for index in np.flatnonzero(~flags).tolist():
        whole = batches.record_count[index] == batches.last_offset[index] - batches.base_offset[index] + 1
        if batches.attributes[index] & CONTROL or batches.base_sequence[index] < 0 or not whole:
            continue
        same_producer = (batches.producer_id == batches.producer_id[index]) & (
            batches.producer_epoch == batches.producer_epoch[index]
        )
        neighbors = np.flatnonzero(same_producer & batches.sound & (batches.attributes == batches.attributes[index]))
        flags[index] = _follows(batches, neighbors[neighbors < index][-1:], index) or _follows(
            batches, neighbors[neighbors > index][:1], index
        )
    return flags


def _follows(batches: BatchTable, neighbor: Integers, index: int) -> bool:
    if not len(neighbor):
        return False
    first, second = sorted((int(neighbor[0]), index))
    length = batches.last_offset[first] - batches.base_offset[first] + 1
    return bool((batches.base_sequence[first] + length) & INT32_MAX == batches.base_sequence[second])


def _begins(batches: BatchTable, rows: Integers, task: SegmentTask) -> Flags:
    control = batches.is_control[rows]
    attributes_differ = np.diff(batches.is_transactional[rows].astype(np.int8)) != 0
    begins = np.ones(len(rows), np.bool_)
    begins[1:] = np.diff(batches.producer_id[rows]) != 0
    begins[1:] |= np.diff(batches.producer_epoch[rows]) != 0
    begins[1:] |= attributes_differ | control[1:] | control[:-1]
    if not task.cleaned:  # a marker may be among the missing batches
        contiguous = batches.base_offset[1:] == batches.last_offset[:-1] + 1
        gaps = np.concatenate(([0], np.cumsum(~contiguous)))
        begins[1:] |= np.diff(gaps[rows]) != 0
    # Coordinators append to internal topics without sequences.
    if task.topic not in INTERNAL_TOPICS:
        sequence = batches.base_sequence[rows]
        following = (sequence + batches.last_offset[rows] - batches.base_offset[rows] + 1) & INT32_MAX
        begins[1:] |= sequence[1:] != following[:-1]
    # A run ends at a snapshot's offset, so that the snapshot can be compared with the log up to it.
    if task.snapshots:
        stretch = np.searchsorted(np.array(task.snapshots, np.int64), batches.base_offset[rows], side="right")
        begins[1:] |= np.diff(stretch) != 0
    return begins


def _rows(
    batches: BatchTable,
    rows: Integers,
    outcome: Integers,
    coordinator_epoch: Integers,
    starts: Integers,
    ends: Integers,
    task: SegmentTask,
) -> pa.RecordBatch:
    count = len(starts)
    first, last = rows[starts], rows[ends]
    control = batches.is_control[first]
    sequence = batches.base_sequence
    last_sequence = (sequence[last] + batches.last_offset[last] - batches.base_offset[last]) & INT32_MAX
    columns: dict[str, Any] = {
        "topic": pa.repeat(task.topic, count),
        "partition": np.full(count, task.partition),
        "replica": np.full(count, task.replica),
        "producer_id": batches.producer_id[first],
        "offset": batches.base_offset[first],
        "rank": np.where(control, int(Rank.MARKER), int(Rank.DATA)),
        "last_offset": batches.last_offset[last],
        "epoch": batches.producer_epoch[first],
        "first_sequence": sequence[first],
        "last_sequence": np.where(sequence[last] < 0, -1, last_sequence),
        "batches": ends - starts + 1,
        "records": np.add.reduceat(batches.record_count[rows], starts),
        "size_bytes": np.add.reduceat(batches.size_bytes[rows], starts),
        "transactional": batches.is_transactional[first],
        "outcome": outcome[starts],
        "coordinator_epoch": coordinator_epoch[starts],
        "first_timestamp": batches.max_timestamp[first],
        "last_timestamp": np.maximum.reduceat(batches.max_timestamp[rows], starts),
        "value": np.full(count, -1),
        "name": pa.repeat("", count),
        "place": pa.repeat("", count),
    }
    arrays = [columns[field.name] for field in _SCHEMA]
    return pa.RecordBatch.from_arrays(
        [
            values if isinstance(values, pa.Array) else pa.array(values, field.type)
            for values, field in zip(arrays, _SCHEMA, strict=True)
        ],
        schema=_SCHEMA,
    )


def markers(batches: BatchTable, chosen: Integers) -> tuple[Integers, Integers]:
    """Outcome and coordinator epoch of each chosen batch: OPEN for data, UNKNOWN for unsound or emptied markers."""
    outcome = np.full(len(chosen), int(TransactionOutcome.OPEN), np.int64)
    coordinator_epoch = np.full(len(chosen), -1, np.int64)
    controls = np.flatnonzero(batches.is_control[chosen])
    if not len(controls):
        return outcome, coordinator_epoch
    outcome[controls] = int(TransactionOutcome.UNKNOWN)
    rows = chosen[controls]
    sound = batches.sound[rows]
    standard = sound & (batches.size_bytes[rows] == _MARKER_BYTES) & ((batches.attributes[rows] & CODEC_MASK) == 0)
    if standard.any():
        bodies = _bodies(batches, rows[standard])
        matches = (bodies[:, _FIXED] == _SHAPE[_FIXED]).all(axis=1) & (bodies[:, _TYPE] <= 1)
        standard[np.flatnonzero(standard)[~matches]] = False
        bodies = bodies[matches]
        outcome[controls[standard]] = bodies[:, _TYPE]
        coordinator_epoch[controls[standard]] = np.ascontiguousarray(bodies[:, _EPOCH : _EPOCH + 4]).view(">i4")[:, 0]
    for index in np.flatnonzero(sound & ~standard).tolist():
        outcome[controls[index]], coordinator_epoch[controls[index]] = _decode_marker(batches, int(rows[index]))
    return outcome, coordinator_epoch


def _bodies(batches: BatchTable, rows: Integers) -> npt.NDArray[np.uint8]:
    # A stride of one makes every byte the start of a window, so that numpy copies all bodies in one step.
    windows = np.ndarray(len(batches.data) - _MARKER_BODY + 1, (np.void, _MARKER_BODY), batches.data, strides=(1,))
    bodies = windows[batches.position[rows] - batches.start + HEADER_SIZE]
    return bodies.view(np.uint8).reshape(len(rows), _MARKER_BODY)


def _decode_marker(batches: BatchTable, index: int) -> tuple[int, int]:
    position = int(batches.position[index]) - batches.start
    try:
        header = read_header(batches.data, position)
        for record in read_records(batches.data, position, header, _MAX_MARKER_BYTES):
            marker = end_transaction_marker_of(record)
            return (OTHER_CONTROL, -1) if marker is None else (int(marker.committed), marker.coordinator_epoch)
    except CorruptBatch:
        pass
    return int(TransactionOutcome.UNKNOWN), -1
