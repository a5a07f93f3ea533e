"""Whatever a producer may send is decoded as the naive decoder does; whatever else raises CorruptBatch only."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.records.batch import CorruptBatch
from oncelog.records.builder import build_batch, end_transaction_marker, seal
from oncelog.records.columns.batches import GROUP_BYTES
from oncelog.records.columns.decode import Selection, column_schema, decode
from oncelog.records.compression import Codec
from oncelog.records.record import Record
from tests.unit.records.columns.naive import naive_rows

TIME = 1_700_000_000_000


def payload(chance: random.Random, limit: int) -> bytes | None:
    size = chance.randrange(limit)
    return chance.choice([None, b"", bytes(size), chance.randbytes(size), b"\x02" * size, b"x" * size])


def random_records(chance: random.Random, base: int, count: int) -> list[Record]:
    gaps, large, even = chance.random() < 0.3, chance.random() < 0.1, chance.random() < 0.3
    records, offset, timestamp = [], base, TIME
    for _ in range(count):
        timestamp += chance.choice([0, 0, 1, -3, 70, 9_000, 10**6, -(10**11), 10**17 if chance.random() < 0.02 else 2])
        value = b"v" * 100 if even else payload(chance, 40_000 if large and chance.random() < 0.1 else 300)
        headers = tuple(
            ("h" * chance.randrange(10), payload(chance, 50)) for _ in range(chance.choice([0, 0, 0, 1, 3, 30]))
        )
        records.append(Record(offset, timestamp, payload(chance, 30), value, headers))
        offset += 1 + (chance.randrange(200) if gaps and chance.random() < 0.3 else 0)
    return records


def random_fetch(chance: random.Random, base: int) -> tuple[bytes, list[tuple[int, int]]]:
    """A fetch response's batches and its aborted list: producers 1–3 with transactions, and others without."""
    fetched = bytearray()
    aborted: list[tuple[int, int]] = []
    open_since: dict[int, int] = {}
    for _ in range(chance.choice([1, 2, 5, 60])):
        producer = chance.choice([-1, -1, 1, 2, 3])
        if producer in open_since and chance.random() < 0.5:
            committed = chance.random() < 0.5
            first = open_since.pop(producer)
            if not committed:
                aborted.append((producer, first))
            fetched += end_transaction_marker(
                producer_id=producer,
                producer_epoch=0,
                committed=committed,
                coordinator_epoch=0,
                timestamp=TIME,
                base_offset=base,
            )
            base += 1
            continue
        if producer > 0:
            open_since.setdefault(producer, base)
        records = random_records(chance, base, chance.choice([1, 2, 5, 60, 130]))
        fetched += build_batch(
            records,
            base_offset=base,
            codec=chance.choice([Codec.NONE] * 6 + list(Codec)),
            producer_id=producer,
            transactional=producer > 0,
            log_append_time_ms=TIME + 5 if chance.random() < 0.1 else None,
            last_offset=records[-1].offset + chance.choice([0, 0, 3]),
        )
        base = records[-1].offset + 4
    return bytes(fetched), aborted


def table_of(
    fetched: bytes, selection: Selection, aborted: list[tuple[int, int]], piece_bytes: int = GROUP_BYTES
) -> pa.Table:
    pieces = [piece.rows for piece in decode(fetched, selection, aborted, piece_bytes=piece_bytes)]
    table = pa.Table.from_batches(pieces, column_schema(include_headers=selection.include_headers))
    table.validate(full=True)
    return table


@pytest.mark.slow
@given(st.integers(0, 2**48))
@settings(max_examples=60)
def test_decodes_what_the_naive_decoder_does(seed: int) -> None:
    chance = random.Random(seed)
    base = chance.choice([0, chance.randrange(1 << 40)])
    fetched, aborted = random_fetch(chance, base)
    expected = naive_rows(fetched, aborted)
    start = base + chance.choice([0, chance.randrange(200)])
    end = start + chance.choice([1 << 40, chance.randrange(1, 2000)])
    expected = [row for row in expected if start <= row["offset"] < end]
    partial = fetched[: chance.randrange(61)]
    selection = Selection("t", 0, start, end, read_committed=True, include_headers=True)
    table = table_of(fetched + partial, selection, aborted, chance.choice([100, 5000, GROUP_BYTES]))
    for name in ("key", "value", "offset", "timestampType", "headers"):
        assert table[name].to_pylist() == [row[name] for row in expected], name
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [row["timestamp"] for row in expected]


@given(st.integers(0, 2**48))
@settings(max_examples=60)
def test_changed_bytes_raise_corrupt_batch_or_decode_to_sound_columns(seed: int) -> None:
    chance = random.Random(seed)
    records = random_records(chance, 0, chance.choice([1, 5, 100]))
    original = build_batch(records, codec=chance.choice([Codec.NONE, Codec.NONE, *Codec]))
    for _ in range(5):
        hostile = bytearray(original)
        for _ in range(chance.choice([1, 3, 30])):
            hostile[chance.randrange(21, len(hostile))] = chance.randrange(256)
        seal(hostile)
        fetched = bytes(hostile) * chance.choice([1, 1, 40])
        try:
            table_of(fetched, Selection("t", 0, include_headers=True), [])
        except CorruptBatch:
            continue
