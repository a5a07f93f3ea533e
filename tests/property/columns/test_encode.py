"""Columns become the very bytes that the record-by-record builder makes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.records.batch import crc_matches, read_header
from oncelog.records.builder import build_batch
from oncelog.records.columns.encode import Rows, encode, sealed_header
from oncelog.records.compression import Codec
from oncelog.records.record import Record, read_records

FIELDS = st.none() | st.binary(max_size=30) | st.integers(60, 70).map(bytes) | st.integers(8190, 8200).map(bytes)
TIMES = st.integers(0, 300) | st.integers(0, 1 << 26) | st.integers(-(1 << 62), 1 << 62)
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2).map(tuple)
RECORDS = st.lists(st.tuples(FIELDS, FIELDS, TIMES, HEADERS), min_size=1, max_size=40)


@settings(max_examples=150)
@given(RECORDS, st.booleans(), st.booleans(), st.integers(20, 4000), st.integers(0, 3), st.booleans())
def test_bytes_are_those_of_the_builder(
    given_records: list[tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]],
    keyed: bool,
    with_headers: bool,
    batch_bytes: int,
    skipped: int,
    near: bool,
) -> None:
    records = [
        Record(-1, time % 1000 if near else time, key if keyed else None, value, headers if with_headers else ())
        for key, value, time, headers in given_records
    ]
    padding = [b"not of it"] * skipped
    keys = pa.array([*padding, *(record.key for record in records)], pa.binary()).slice(skipped)
    values = pa.array([*padding, *(record.value for record in records)], pa.binary()).slice(skipped)
    times = np.array([record.timestamp for record in records], np.int64)
    headers = [record.headers for record in records] if with_headers else None
    left = list(records)
    for body in encode(Rows(keys if keyed else None, values, times, headers), batch_bytes=batch_bytes):
        batch = sealed_header(body, producer_id=7, producer_epoch=1, base_sequence=3, transactional=True) + body.data
        part, left = left[: body.records], left[body.records :]
        assert batch == build_batch(part, producer_id=7, producer_epoch=1, base_sequence=3, transactional=True)
    assert not left


def test_compressed_batches_read_back() -> None:
    values = pa.array([b"value %d" % number for number in range(5000)], pa.binary())
    rows = Rows(None, values, np.arange(5000, dtype=np.int64))
    for codec in Codec:
        results = []
        for body in encode(rows, batch_bytes=20_000, codec=codec):
            batch = sealed_header(body) + body.data
            header = read_header(batch)
            assert crc_matches(batch, 0, header)
            assert header.codec is codec
            results += [record.value for record in read_records(batch, 0, header, 1 << 20)]
        assert results == values.to_pylist()


def test_no_rows_are_no_batches() -> None:
    assert not list(encode(Rows(None, pa.array([], pa.binary()), np.array([], np.int64)), batch_bytes=1000))
