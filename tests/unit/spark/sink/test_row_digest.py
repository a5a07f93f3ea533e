"""The ledger's checksum: the same for the same rows in any order and division, another for others."""

from __future__ import annotations

import pyarrow as pa
import pytest

from oncelog.spark.sink.row_digest import Digest


def digest(*tables: pa.Table) -> str:
    made = Digest()
    for table in tables:
        made.add(table)
    return str(made)


@pytest.mark.parametrize("size", [3, 1000])
def test_order_and_division_do_not_count_and_everything_else_does(size: int) -> None:
    keys = [b"a", None, b"", b"b"]
    values = [b"x" * size, None, b"", b"y" * size]
    table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
    whole = digest(table)
    assert digest(table.take([3, 1, 0, 2])) == whole
    assert digest(table.slice(0, 1), table.slice(1)) == whole
    assert digest(pa.concat_tables([table.slice(2), table.slice(0, 2)])) == whole
    texts = table.set_column(0, "key", pa.array(["a", None, "", "b"]))
    assert digest(texts) == whole
    for key, value in ((0, b"z"), (1, b""), (2, None)):
        changed = [value if number == key else one for number, one in enumerate(keys)]
        assert digest(table.set_column(0, "key", pa.array(changed, pa.binary()))) != whole
        changed = [value if number == key else one for number, one in enumerate(values)]
        assert digest(table.set_column(1, "value", pa.array(changed, pa.binary()))) != whole
    swapped = pa.array([b"b", None, b"", b"a"], pa.binary())
    assert digest(table.set_column(0, "key", swapped)) != whole
    nulls = pa.array([None] * 4, pa.binary())
    assert digest(table.set_column(0, "key", nulls)) == digest(table.select(["value"])) != whole
