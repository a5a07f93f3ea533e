"""The guides' tables name every option of the source and the sink, with the default that is declared."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from oncelog.spark.sink import options as sink
from oncelog.spark.source import options as source

DOCS = Path(__file__).parents[3] / "docs"
WITHOUT_EFFECT = {"groupIdPrefix"}
DEFAULT = {"–": None, "one of them": None}
"""Defaults that are no value. Where a query starts and ends depends on its kind, which is told in words."""
IN_WORDS = {"startingOffsets", "endingOffsets"}


def documented(page: str) -> dict[str, str | None]:
    """Option → default, by the tables whose first column is ``option``; the client's keys left out."""
    results: dict[str, str | None] = {}
    for table in re.findall(r"^\| option \|.*\n(?:\|.*\n)+", (DOCS / page).read_text(), re.MULTILINE):
        for line in table.splitlines()[2:]:
            names, default, *_ = [cell.strip() for cell in line.strip("|").split("|")]
            for name in re.findall(r"`([^`]+)`", names):
                if not name.startswith("kafka.") and name not in WITHOUT_EFFECT:
                    results[name] = None if name in IN_WORDS else DEFAULT.get(default, default.strip("`"))
    return results


@pytest.mark.parametrize(
    ("page", "declared"), [("spark-source.md", source.OPTIONS), ("spark-sink.md", sink.OPTIONS)], ids=["source", "sink"]
)
def test_the_guide_and_the_declaration_name_the_same(page: str, declared: Mapping[str, str | None]) -> None:
    assert documented(page) == dict(declared)
