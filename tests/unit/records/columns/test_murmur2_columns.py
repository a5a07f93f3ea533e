"""Hashes of many keys at once are those of one key at a time."""

from __future__ import annotations

import random

import pyarrow as pa

from oncelog.client.machine.partitioner import murmur2
from oncelog.records.columns.murmur2_columns import murmur2_of


def test_every_length_as_one_by_one() -> None:
    entropy = random.Random(1)
    keys = [entropy.randbytes(number % 37) for number in range(300)]
    column = pa.array([b"not of it", *keys], pa.binary()).slice(1)
    assert murmur2_of(column).tolist() == [murmur2(key) for key in keys]
    assert murmur2_of(pa.array([], pa.binary())).tolist() == []
