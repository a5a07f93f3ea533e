from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.checks.named_by_string import exists, patched, unset_slots

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_every_attribute_that_tests_and_mutants_replace_exists() -> None:
    gone = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text("utf-8")
        if "setattr(" in text or "Mutant(" in text:
            gone += [f"{path}:{line} {name}" for line, name in patched(ast.parse(text)) if not exists(name)]
    assert gone == []


@pytest.mark.slow
def test_every_slot_is_set() -> None:
    unset = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = path.read_text("utf-8")
        if "__slots__" in text:
            unset += [f"{path}:{line} {name}" for line, name in unset_slots(ast.parse(text))]
    assert unset == []


def test_owners_are_imported_names_or_part_of_the_string() -> None:
    text = """
from oncelog.base import units
from oncelog.base.units import KIB as SIZE

monkeypatch.setattr(units, "GONE", 1)
monkeypatch.setattr("oncelog.base.units.KIB", 1)
setattr(local, "name", 1)
Mutant("name", "what", units, "MIB", replace)
Mutant("name", "what", SIZE.real, "gone", replace)
"""
    names = [name for _, name in patched(ast.parse(text))]
    assert names == [
        "oncelog.base.units.GONE",
        "oncelog.base.units.KIB",
        "oncelog.base.units.MIB",
        "oncelog.base.units.KIB.real.gone",
    ]
    assert [exists(name) for name in names] == [False, True, True, False]


def test_a_slot_without_an_assignment_is_named() -> None:
    text = "class A:\n    __slots__ = ('kept', 'old', '__weakref__')\n    def __init__(self):\n        self.kept = 1"
    assert list(unset_slots(ast.parse(text))) == [(2, "old")]
