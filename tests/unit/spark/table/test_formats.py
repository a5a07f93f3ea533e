"""A directory is of one table in one format."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.spark.export import export
from oncelog.spark.table.directory import Table, TableError, other_format
from oncelog.spark.targets.address import parse_address
from oncelog.spark.targets.entry import compact
from oncelog.spark.targets.format_table import lock


def test_a_directory_is_known_by_what_its_format_leaves(tmp_path: Path) -> None:
    assert other_format(tmp_path, "parquet") is None
    assert other_format(tmp_path / "none", "delta") is None
    (tmp_path / "_delta_log").mkdir()
    assert other_format(tmp_path, "delta") is None
    assert f"write delta:{tmp_path} for it" in (other_format(tmp_path, "iceberg") or "")


def test_a_table_of_parquet_files_is_not_made_among_another_formats(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").touch()
    with pytest.raises(TableError, match=f"holds a table in Iceberg: write iceberg:{tmp_path}"), Table.open(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["catalog.db"]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_another_format_is_not_made_among_parquet_files(kind: str, tmp_path: Path) -> None:
    with Table.open(tmp_path) as table:
        table.set_description({})
    address = parse_address(f"{kind}:{tmp_path}", None, {})
    assert address is not None
    with pytest.raises(TableError, match=f"holds a table in Parquet: write {tmp_path} for it"), lock(address):
        pass


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_compacting_what_is_not_there_makes_nothing(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "table"
    with pytest.raises(TableError, match=f"there is no table at {kind}:{place}"):
        compact(f"{kind}:{place}")
    assert not place.exists()


def test_other_formats_are_not_exported() -> None:
    with pytest.raises(
        TableError, match=r"delta:/x cannot be exported: `oncelog export` reads directories of Parquet files"
    ):
        export("delta:/x", "topic", "nowhere:1")
