"""Acquired batches as Arrow columns."""

from __future__ import annotations

import pytest

from oncelog.arrow import read_acquired_arrow
from oncelog.base.ids import NO_TOPIC_ID, TopicName, TopicPartition
from oncelog.client.machine.consumed_records import UnreadableRecords
from oncelog.client.machine.share.values import AcquiredBatches, AcquiredRange
from oncelog.records.builder import build_batch
from oncelog.records.record import Record


def acquired(records: bytes | bytearray, *ranges: AcquiredRange) -> AcquiredBatches:
    at = TopicPartition(TopicName("t"), 3)
    return AcquiredBatches(at, memoryview(records), ranges, 0, NO_TOPIC_ID, 1)


def test_only_acquired_records_are_rows_with_their_deliveries() -> None:
    stored = build_batch([Record(offset, 1000, b"k", b"%d" % offset, (("h", b"1"),)) for offset in range(10)])
    batches = acquired(stored, AcquiredRange(2, 3, 1), AcquiredRange(7, 7, 4))
    rows = [row for piece in read_acquired_arrow(batches, include_headers=True) for row in piece.to_pylist()]
    assert [(row["offset"], row["value"], row["deliveryCount"]) for row in rows] == [
        (2, b"2", 1),
        (3, b"3", 1),
        (7, b"7", 4),
    ]
    assert {(row["topic"], row["partition"], len(row["headers"])) for row in rows} == {("t", 3, 1)}


def test_a_damaged_batch_is_an_error() -> None:
    stored = build_batch([Record(0, 0, None, b"v")])
    stored[-1] ^= 1
    with pytest.raises(UnreadableRecords, match="records 0 to 0 of t-3"):
        list(read_acquired_arrow(acquired(stored, AcquiredRange(0, 0, 1))))
