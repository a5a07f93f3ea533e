"""The check for knots of sub-rooms: what it finds in planted sources, and what it lets pass."""

from __future__ import annotations

from typing import Final

from tests.checks.knots import Knot, knots, problems

LEVELS: Final = {
    "p": ["p.low.a"],
    "p.high.a": ["p.low.a", "p.high.b"],
    "p.high.b": ["q"],
    "p.low.a": [],
    "q": ["p.top"],
}
RING: Final = {"p.a.x": ["p.b.x"], "p.b.x": [], "p.b.y": ["p.c"], "p.c": ["p.a.y"], "p.a.y": []}


def test_levels_pass() -> None:
    assert knots(LEVELS | {"p.top": ["p.high.a"]}) == []


def test_boxes_that_tie_a_ring_are_found_though_no_modules_do() -> None:
    ring = [("p.a.x", "p.b.x"), ("p.b.y", "p.c"), ("p.c", "p.a.y")]
    assert knots(RING) == [Knot("p", ["a", "b", "c"], ring)]


def test_a_part_with_a_row_is_a_box_of_its_own() -> None:
    roof = {"p.low": [], "p.roof.cellar": ["p.low"], "p.a": ["p.roof.cellar"], "p.roof.attic": ["p.a"]}
    assert [knot.boxes for knot in knots(roof)] == [["a", "roof"]]
    assert knots(roof, ["p.roof.cellar", "p.roof.attic"]) == []


def test_a_ring_deep_within_a_room_is_found() -> None:
    deep = {"r.s": ["r.t"], "r.t": []} | {
        f"r.s.{name}": [f"r.s.{other}" for other in others] for name, others in RING.items()
    }
    assert [(knot.room, knot.boxes) for knot in knots(deep)] == [("r.s.p", ["a", "b", "c"])]


def test_a_problem_names_the_imports_that_tie_the_ring() -> None:
    (text,) = problems(knots(RING))
    assert text.splitlines()[0].startswith("p: a, b, c import each other")
    assert "    p.c imports p.a.y" in text.splitlines()
