"""Decoded columns as Spark has them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from oncelog.schemas.schema import Schema
from oncelog.spark.registry_values.arrow_types import converted, storable
from oncelog.spark.registry_values.decoding import RegistryDecoding

FAR = (1 << 63) - 1
MILLIS = pa.timestamp("ms", "UTC")
MICROS = pa.timestamp("us", "UTC")


@pytest.mark.parametrize("part", [slice(0, 4), slice(1, 4)])
@pytest.mark.parametrize(
    ("kind", "number", "rows", "expected"),
    [
        (MILLIS, pa.int64(), [1, FAR, None, -1], [1000, None, None, -1000]),
        (
            pa.list_(MILLIS),
            pa.list_(pa.int64()),
            [[1, FAR], None, [], [FAR // 1000]],
            [[1000, None], None, [], [FAR // 1000 * 1000]],
        ),
        (
            pa.map_(pa.string(), MILLIS),
            pa.map_(pa.string(), pa.int64()),
            [[("a", -FAR)], [("b", 2)], None, []],
            [[("a", None)], [("b", 2000)], None, []],
        ),
        (
            pa.struct([("t", MILLIS), ("s", pa.string())]),
            pa.struct([("t", pa.int64()), ("s", pa.string())]),
            [{"t": FAR, "s": "x"}, None, {"t": 1, "s": None}, {"t": None, "s": "y"}],
            [{"t": None, "s": "x"}, None, {"t": 1000, "s": None}, {"t": None, "s": "y"}],
        ),
    ],
)
def test_milliseconds_that_microseconds_cannot_hold_are_null(
    kind: Any, number: Any, rows: list[Any], expected: list[Any], part: slice
) -> None:
    array: Any = pa.array(rows, number).cast(kind)[part]
    column = converted(array, storable(kind))
    column.validate(full=True)
    assert column.cast(number).to_pylist() == expected[part]


def test_a_decoding_is_written_without_its_login() -> None:
    settings = {"basic.auth.user.info": "alice:secret"}
    assert "secret" not in repr(RegistryDecoding("http://bob:secret@h", settings, "s", 1, Schema('"int"')))
