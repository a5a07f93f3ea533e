"""Batches of any records come back as they were; damaged ones are corrupt and nothing else."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.records.batch import CorruptBatch, crc_matches, iter_headers, next_sequence, read_header
from oncelog.records.builder import build_batch, seal
from oncelog.records.compression import Codec, compress, decompress
from oncelog.records.record import Record, read_records
from oncelog.records.varint import append_varint, read_varint, read_varlong

LIMIT = 1 << 20
SEQUENCES = st.integers(0, 2**31 - 1)

maybe_bytes = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=8), maybe_bytes), max_size=3).map(tuple)
plain_records = st.lists(
    st.builds(Record, st.integers(0, 5), st.integers(-(2**40), 2**40), maybe_bytes, maybe_bytes, headers),
    min_size=1,
    max_size=12,
)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    """Records whose offsets rise, with gaps as compaction leaves them."""
    records = draw(plain_records)
    offset = draw(st.integers(0, 2**40))
    placed = []
    for record in records:
        offset += record.offset + 1
        placed.append(record._replace(offset=offset))
    return placed


@pytest.mark.slow
@given(record_lists(), st.sampled_from(Codec), st.integers(-1, 2**40), SEQUENCES)
def test_a_batch_gives_back_its_records(records: list[Record], codec: Codec, producer_id: int, sequence: int) -> None:
    batch = build_batch(
        records,
        base_offset=records[0].offset,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=3,
        base_sequence=sequence,
    )
    ((position, header),) = iter_headers(batch)
    assert crc_matches(batch, position, header)
    assert list(read_records(batch, position, header, LIMIT)) == records
    assert header.last_offset == records[-1].offset
    assert header.max_timestamp == max(-1, *(record.timestamp for record in records))
    assert header.last_sequence == (sequence + header.last_offset_delta) % 2**31


@pytest.mark.slow
@given(record_lists(), st.sampled_from(Codec), st.data())
def test_a_damaged_batch_is_corrupt_and_nothing_else(records: list[Record], codec: Codec, data: st.DataObject) -> None:
    batch = build_batch(records, base_offset=records[0].offset, codec=codec)
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del batch[data.draw(st.integers(0, len(batch))) :]
    else:
        seal(batch)
    try:
        for position, header in iter_headers(batch):
            list(read_records(batch, position, header, LIMIT))
    except CorruptBatch:
        pass


@given(st.binary(max_size=200), st.sampled_from(Codec))
def test_any_bytes_are_decompressed_or_corrupt(data: bytes, codec: Codec) -> None:
    with contextlib.suppress(CorruptBatch):
        assert len(decompress(codec, data, 4096)) <= 4096
    assert decompress(codec, compress(codec, data), len(data)) == data


@given(st.binary(max_size=100))
def test_any_bytes_are_a_header_or_corrupt(data: bytes) -> None:
    with contextlib.suppress(CorruptBatch):
        read_header(data)


@given(SEQUENCES, st.integers(0, 2**31 - 1))
def test_sequences_stay_in_their_range(sequence: int, increment: int) -> None:
    assert next_sequence(sequence, increment) == (sequence + increment) % 2**31


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_come_back(value: int) -> None:
    encoded = bytearray()
    append_varint(encoded, value)
    assert read_varlong(bytes(encoded), 0) == (value, len(encoded))
    if -(2**31) <= value < 2**31:
        assert read_varint(bytes(encoded), 0) == (value, len(encoded))
        assert len(encoded) <= 5
