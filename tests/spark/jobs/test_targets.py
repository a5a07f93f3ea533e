"""Delta and Iceberg tables: rows and offsets in one commit, whichever load dies where."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncelog.spark.jobs.load_report import Event
from oncelog.spark.jobs.shape import Shape
from oncelog.spark.session.errors import OptionError
from oncelog.spark.targets.entry import load
from tests.spark.conftest import Topic
from tests.spark.jobs.test_shaped_load import flight, send

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def rows_in(kind: str, place: Path) -> pa.Table:
    if kind == "delta":
        from deltalake import DeltaTable

        return DeltaTable(place).to_pyarrow_table()
    from oncelog.spark.targets.address import parse_address
    from oncelog.spark.targets.iceberg import IcebergTarget

    address = parse_address(f"iceberg:{place}", None, {})
    assert address is not None
    table = IcebergTarget(address)._table()
    assert table is not None
    return table.scan().to_arrow()


class Died(Exception):
    """The load, where the test wants it."""


def test_delta_has_each_record_once(spark: SparkSession, topic_with: Callable[..., Topic], tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    check("delta", spark, topic_with(0), tmp_path / "table")


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # pyiceberg leaves its catalog's connections to the collector
def test_iceberg_has_each_record_once(spark: SparkSession, topic_with: Callable[..., Topic], tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    check("iceberg", spark, topic_with(0), tmp_path / "table")


def check(kind: str, spark: SparkSession, topic: Topic, place: Path) -> None:
    """With columns that come later, and bad rows in a table beside it."""
    values = [flight(n) if n != 3 else b"bad" for n in range(6)]
    send(topic, *values)
    send(topic, flight(100), partition=1)

    def run(schema: str, die_when: str = "") -> int:
        def on_event(event: Event) -> None:
            if event.kind == die_when:
                raise Died

        shape = Shape("json", schema, partition_by="day")
        servers = topic.bootstrap_servers
        report = load([topic.name], servers, f"{kind}:{place}", spark=spark, shape=shape, on_event=on_event)
        return report.rows

    with pytest.raises(Died):
        run("number INT", die_when="publishing")  # its bad row is in the quarantine already
    assert rows_in(kind, place).num_rows == 0
    with pytest.raises(Died):
        run("number INT", die_when="committed")
    assert run("number INT") == 0
    send(topic, flight(200, speed=1.5), partition=1)
    assert run("number INT, speed DOUBLE") == 1
    table = rows_in(kind, place).sort_by([("partition", "ascending"), ("offset", "ascending")])
    assert table["number"].to_pylist() == [0, 1, 2, 4, 5, 100, 200]
    assert table["speed"].to_pylist() == [None] * 6 + [1.5]
    if kind == "delta":
        days = [date(2023, 11, 15 + at // 4) for at in (0, 1, 2, 4, 5)]
        assert table["day"].to_pylist()[:5] == days
    bad = rows_in(kind, place.with_name("table-quarantine"))
    assert bad.select(["partition", "offset", "value", "reason"]).to_pylist() == [
        {"partition": 0, "offset": 3, "value": b"bad", "reason": "not JSON: expecting value at character 1"}
    ]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_missing_package_is_named(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, f"oncelog.spark.targets.{kind}", None)
    with pytest.raises(OptionError, match=rf"pip install 'oncelog\[{kind}\]'"):
        load(["t"], "nowhere:1", f"{kind}:{tmp_path}")
