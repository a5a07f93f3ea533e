"""Tables of other writers: columns of other types, and metadata that is damaged."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from oncelog.spark.session.errors import OptionError
from oncelog.spark.table.directory import TableError
from oncelog.spark.table_audit.delta_history import DeltaHistory, open_delta
from oncelog.spark.table_audit.iceberg_history import IcebergHistory
from oncelog.spark.table_audit.model import History, Place
from oncelog.spark.targets.delta import ENDS
from tests.unit.spark.table_audit.tables import audited, kinds

pytestmark = pytest.mark.slow
TEXTS = pa.schema([("topic", pa.string()), ("partition", pa.string()), ("offset", pa.string())])
ROW = pa.Table.from_pylist([{"topic": "orders", "partition": "eu", "offset": "x"}], TEXTS)
ALL = Place("topic", "partition", "offset")


def texts(kind: str, place: Path, columns: Place | None = None) -> History:
    """A table whose columns have the names of a record's place, and hold text."""
    if kind == "delta":
        write_deltalake(str(place), ROW, mode="overwrite")
        return open_delta(str(place), {}, columns)
    catalog = SqlCatalog("lake", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
    catalog.create_namespace_if_not_exists("shop")
    table = catalog.create_table_if_not_exists("shop.orders", TEXTS)
    table.append(ROW)
    return IcebergHistory("iceberg:shop.orders", table, columns)


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_columns_of_other_types_are_no_place(kind: str, tmp_path: Path) -> None:
    table = texts(kind, tmp_path)
    assert kinds(audited(table)) == []
    with pytest.raises(OptionError, match="its rows cannot be judged"):
        audited(table, rows=True)
    with pytest.raises(OptionError, match="of types string, integer and integer"):
        texts(kind, tmp_path, ALL)


@pytest.mark.parametrize(
    "line",
    [
        '{"add": 5}',
        '{"add": {}}',
        '{"txn": {}}',
        f'{{"txn": {{"appId": "{ENDS}x", "version": 1}}}}',
        '{"commitInfo": {"timestamp": "x"}}',
        '{"add": {"path": "p", "stats": "[1]"}}',
    ],
)
def test_a_damaged_version_is_named(line: str, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), ROW)
    table = open_delta(str(tmp_path), {}, None)
    log = tmp_path / "_delta_log" / f"{0:020d}.json"
    log.write_text(f"{log.read_text().rstrip()}\n{line}\n")
    with pytest.raises(TableError, match=r"0(\.json)? of orders cannot be read"):
        audited(DeltaHistory("orders", table._table, table._store))
