"""The contract of rooms on planted packages: rows, parts with rows of their own, and doors."""

from __future__ import annotations

from typing import Final

import pytest
from grimp import ImportGraph

from tests.checks.contracts import RoomsContract

MODULES: Final = ("p", "p.a", "p.a.x", "p.roof", "p.roof.low", "p.roof.low.y", "p.roof.high", "p.roof.high.z", "p.top")
ROWS: Final = ["a: roof.low", "roof.low:", "roof.high: a, roof.low", "top:"]


def refused(imports: list[tuple[str, str]], rows: list[str] = ROWS) -> tuple[list[tuple[str, str]], list[str]]:
    graph = ImportGraph()
    for module in MODULES:
        graph.add_module(module)
    for importer, imported in imports:
        graph.add_import(importer=importer, imported=imported)
    options = {"package": "p", "rooms": rows, "top": "top", "doors": "roof.low"}
    check = RoomsContract("planted", {}, options).check(graph, verbose=False)
    return check.metadata["refused"], check.metadata["strangers"]


@pytest.mark.parametrize(
    ("importer", "imported"),
    [("p.a.x", "p.roof.low"), ("p.roof.high.z", "p.a.x"), ("p.roof.low", "p.roof.low.y"), ("p.top", "p.roof.high.z")],
)
def test_what_a_row_names_is_let_in(importer: str, imported: str) -> None:
    assert refused([(importer, imported)]) == ([], [])


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("p.a.x", "p.roof.high"),
        ("p.roof.low.y", "p.a"),
        ("p.roof.high", "p.top"),
        ("p.a.x", "p.roof.low.y"),
        ("p.roof.high.z", "p.roof.low.y"),
        ("p.top", "p.roof.low.y"),
    ],
)
def test_an_import_that_no_row_names_or_beside_the_door_is_refused(importer: str, imported: str) -> None:
    assert refused([(importer, imported)]) == ([(importer, imported)], [])


def test_a_room_does_not_include_a_part_that_has_its_own_row() -> None:
    rows = ["a: roof", "roof:", "roof.low:", "top:"]
    assert refused([("p.a", "p.roof.high"), ("p.a", "p.roof.low")], rows) == ([("p.a", "p.roof.low")], [])


def test_a_part_without_a_row_is_a_stranger() -> None:
    assert refused([], [row for row in ROWS if "high" not in row]) == ([], ["p.roof.high"])
