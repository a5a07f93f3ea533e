"""The ways that the usual fetch takes give what the others give, and leave to them what is not usual."""

from __future__ import annotations

import random

import numpy as np
import pytest

from oncelog.records.batch import CorruptBatch
from oncelog.records.builder import build_batch, end_transaction_marker, seal
from oncelog.records.columns import batches
from oncelog.records.columns.decode import Selection, decode
from oncelog.records.columns.plain_batches import GroupLimits, plain_groups
from oncelog.records.columns.record_heads import read_heads
from oncelog.records.columns.varint_columns import GUARD_BYTES, ByteView, Positions
from oncelog.records.compression import Codec
from oncelog.records.record import Record
from oncelog.records.varint import append_varint

TIME = 1_700_000_000_000


def batch(base: int, sizes: list[int], **options: object) -> bytearray:
    records = [Record(base + number, TIME + number, b"key", b"v" * size) for number, size in enumerate(sizes)]
    return build_batch(records, base_offset=base, **options)  # type: ignore[arg-type]  # options are the builder's own


def heads_of(deltas: list[tuple[int, int]]) -> tuple[ByteView, Positions]:
    data, starts = bytearray(), []
    for timestamp, offset in deltas:
        starts.append(len(data))
        append_varint(data, 70)
        data.append(0)
        append_varint(data, timestamp)
        append_varint(data, offset)
        data += random.Random(offset).randbytes(9)  # whatever comes then, its high bits do not matter
    return ByteView(np.frombuffer(data + bytes(GUARD_BYTES), np.uint8)), np.array(starts, np.int64)


def test_heads_of_every_layout_are_those_of_the_varints() -> None:
    values = [0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8193, 1 << 19, -(1 << 20)]
    deltas = [(timestamp, offset) for timestamp in values for offset in (0, 63, 64, 8191)]
    view, starts = heads_of(deltas)
    heads = read_heads(view, starts, max_layouts=100)
    assert heads is not None
    assert list(zip(heads[0].tolist(), heads[1].tolist(), strict=True)) == deltas
    assert (heads[2] + 9).tolist()[:-1] == starts.tolist()[1:]


@pytest.mark.parametrize("far", [(1 << 40, 0), (0, 1 << 30)])
def test_heads_that_do_not_lie_in_eight_bytes_are_left_to_others(far: tuple[int, int]) -> None:
    view, starts = heads_of([(0, 0), far, (1, 1)])
    assert read_heads(view, starts, max_layouts=4) is None


def test_records_of_many_layouts_are_left_to_others() -> None:
    view, starts = heads_of([(0, 0), (64, 0), (8192, 0)])
    assert read_heads(view, starts, max_layouts=2) is None


def test_runs_of_equal_records_with_others_between_them() -> None:
    shapes = ([50] * 300, [50] * 100 + [51] * 100, [7], [300] * 70 + [1] + [300] * 70, list(range(90)))
    fetched, base, sizes = bytearray(), 0, []
    for number in range(40):
        shape = shapes[number % len(shapes)]
        fetched += batch(base, shape)
        base += len(shape)
        sizes += shape
    rows = [piece.rows for piece in decode(bytes(fetched), Selection("t", 0))]
    assert [value for piece in rows for value in piece["value"].to_pylist()] == [b"v" * size for size in sizes]
    assert [offset for piece in rows for offset in piece["offset"].to_pylist()] == list(range(base))


def test_a_batch_among_many_whose_records_do_not_end_where_it_ends_is_refused() -> None:
    hostile = batch(29 * 20, [50] * 20)
    hostile[57:61] = (19).to_bytes(4, "big")
    seal(hostile)
    fetched = b"".join(batch(number * 20, [50] * 20) for number in range(29)) + hostile
    with pytest.raises(CorruptBatch, match="do not end where the batch ends"):
        list(decode(fetched, Selection("t", 0)))


def unusual() -> dict[str, bytearray]:
    damaged = batch(20, [9] * 5)
    damaged[-1] ^= 1
    marker = end_transaction_marker(
        producer_id=7, producer_epoch=0, committed=True, coordinator_epoch=0, timestamp=TIME, base_offset=20
    )
    return {"compressed": batch(20, [9] * 5, codec=Codec.LZ4), "control": bytearray(marker), "damaged": damaged}


@pytest.mark.parametrize("what", ["compressed", "control", "damaged"])
def test_plain_groups_end_before_the_first_that_has_something_else(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = [batch(base, [9] * 5) for base in range(0, 20, 5)]
    fetched = b"".join([*usual, unusual()[what], batch(25, [9] * 5)])
    two = len(usual[0]) + 1
    groups = list(plain_groups(memoryview(fetched), 0, 100, GroupLimits(two, 1000)))
    assert [(len(group.starts), group.next_offset) for group in groups] == [(2, 10), (2, 20)]
    monkeypatch.setattr(batches, "GROUP_BYTES", two)
    offsets = []
    try:
        for piece in decode(fetched, Selection("t", 0)):
            offsets += piece.rows["offset"].to_pylist()
    except CorruptBatch:
        assert what == "damaged"
    after = {"compressed": range(20, 30), "control": range(25, 30), "damaged": range(0)}[what]
    assert offsets == [*range(20), *after]
