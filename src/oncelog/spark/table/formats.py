"""The format of the table that a directory holds, by what each format leaves there: a directory is one table's.

Two tables of different formats in one directory would each be half a table to whoever reads it as the other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

TableFormat = Literal["parquet", "delta", "iceberg"]
_MARKS: Final[dict[TableFormat, str]] = {
    "parquet": "_oncelog/table.json",
    "delta": "_delta_log",
    "iceberg": "catalog.db",
}
_ADDRESSES: Final[dict[TableFormat, str]] = {"parquet": "{}", "delta": "delta:{}", "iceberg": "iceberg:{}"}


def other_format(directory: Path, wanted: TableFormat) -> str | None:
    """The reason, in one line, why a directory is not for a table of that format; None if it has none of another."""
    for found, mark in _MARKS.items():
        if found != wanted and (directory / mark).exists():
            named = _ADDRESSES[found].format(directory)
            return f"{directory} holds a table in {found.capitalize()}: write {named} for it, or name another directory"
    return None
