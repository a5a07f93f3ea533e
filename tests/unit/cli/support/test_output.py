"""Rows one at a time print what all of them at once do."""

from __future__ import annotations

import pytest

from oncelog.admin.transactions.unique_ids import ListedTransaction
from oncelog.cli.support.output import print_json, print_json_rows, print_long_table, print_table

ROWS = [
    ListedTransaction('a\n"b"\u2028', 7, "Empty", 1),
    ListedTransaction("ä", 1_000_000, "Ongoing", 2),
    ListedTransaction("", -1, "PrepareAbort", 10),
]
COLUMNS = ("transactional id", "producer", "state", "coordinator")


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


@pytest.mark.parametrize("count", [0, 1, 3])
def test_json(capsys: pytest.CaptureFixture[str], count: int) -> None:
    print_json(ROWS[:count])
    whole = printed(capsys)
    print_json_rows(iter(ROWS[:count]))
    assert printed(capsys) == whole


def test_a_table_has_its_numbers_to_the_right_and_nothing_as_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "long heading"), [("a", None), ("bcdef", 12)])
    assert printed(capsys) == "NAME   LONG HEADING\na                 -\nbcdef            12\n"
    print_table(("name", "of"), [])
    assert printed(capsys) == "NAME  OF\n"


def test_a_long_table_goes_through_its_rows_twice_and_keeps_none(capsys: pytest.CaptureFixture[str]) -> None:
    times = []

    def rows() -> object:
        times.append(1)
        return ((row.transactional_id, row.producer_id, row.state, row.coordinator) for row in ROWS[1:])

    print_long_table(COLUMNS, rows)  # type: ignore[arg-type]  # an iterator
    assert len(times) == 2
    lines = printed(capsys).splitlines()
    assert lines[1] == "ä                  1000000  Ongoing                 2"
