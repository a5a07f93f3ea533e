"""The rooms in the documentation are those of the code."""

from __future__ import annotations

from tests.checks.contracts import row_of
from tests.checks.rooms import ARCHITECTURE, COMMAND, INSIDE, contracts, floors, inside, with_picture


def test_the_picture_is_the_one_of_the_contracts() -> None:
    text = ARCHITECTURE.read_text("utf-8")
    assert text == with_picture(text), f"write it anew: {COMMAND}"


def test_the_page_of_rooms_is_the_one_of_their_docstrings() -> None:
    assert INSIDE.read_text("utf-8") == inside(), f"write it anew: {COMMAND}"


def test_every_room_and_box_says_what_it_is_for() -> None:
    assert "|  |" not in ARCHITECTURE.read_text("utf-8") + inside()


def test_a_room_stands_above_all_that_it_may_import() -> None:
    rows = contracts()["oncelog"]
    height = {room: floor for floor, rooms in enumerate(floors(rows)) for room in rooms}
    assert height.keys() == rows.keys()
    assert all(
        height[row] < height[room]
        for room, allowed in rows.items()
        for name in allowed
        if (row := row_of(name, rows)) is not None and row != room
    )


def test_floors_of_a_planted_house() -> None:
    rows = {"base": [], "a": [], "b": ["a.part"], "c": ["a", "b"], "cli": []}
    assert floors(rows) == [["base"], ["a"], ["b"], ["c"], ["cli"]]


def test_a_part_with_a_row_has_a_floor_of_its_own() -> None:
    rows = {"base": [], "a": [], "b.low": ["a"], "c": ["b.low.module"], "b.high": ["c"], "cli": []}
    assert floors(rows) == [["base"], ["a"], ["b.low"], ["c"], ["b.high"], ["cli"]]
