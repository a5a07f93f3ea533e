"""Batches of values alone: byte for byte those of the general builder."""

from __future__ import annotations

import pytest

from oncelog.legacy.logs.value_batches import MAX_RECORDS, RECORD_OVERHEAD, value_batches
from oncelog.records.batch import read_header
from oncelog.records.builder import build_batch
from oncelog.records.compression import Codec
from oncelog.records.record import Record, read_records


@pytest.mark.parametrize("timestamp", [-1, 0, 1_385_078_400_000])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_the_bytes_are_the_builders(timestamp: int, codec: Codec) -> None:
    values = [b"", b"a" * 40, b"b" * 61, b"c" * 62, b"d" * 8190] * 60
    (batch,) = value_batches(values, timestamp, 1 << 30, codec)
    assert batch == build_batch([Record(-1, timestamp, None, value) for value in values], codec=codec)


def test_batches_keep_the_order_and_the_bounds() -> None:
    values = [bytes([number % 251]) * (number % 400) for number in range(MAX_RECORDS + 10)]
    batches = list(value_batches(values, 5, 10_000))
    assert all(len(batch) <= 10_000 + 61 for batch in batches)
    read = [record.value for batch in batches for record in read_records(batch, 0, read_header(batch), 1 << 20)]
    assert read == values
    assert len(list(value_batches([b""] * (MAX_RECORDS + 1), 5, 1 << 30))) == 2


def test_a_value_that_is_too_large_is_alone() -> None:
    batches = list(value_batches([b"a", b"b" * 100, b"c"], 5, 50 + RECORD_OVERHEAD))
    assert [read_header(batch).record_count for batch in batches] == [1, 1, 1]
