"""The size check itself: what it refuses and what it lets pass."""

from __future__ import annotations

from pathlib import Path

from tests.checks.sizes import FLAT, FUNCTION_LINES, GENERATED, MODULE_LINES, ROOM_MODULES, flat_rooms, offences


def _function(lines: int) -> str:
    return "def long():\n" + "    pass\n" * (lines - 1)


def test_functions_and_modules_at_the_limit_pass() -> None:
    assert list(offences("m.py", _function(FUNCTION_LINES))) == []
    assert list(offences("m.py", "x = 1\n" * MODULE_LINES)) == []


def test_a_function_over_the_limit_is_named_with_its_line() -> None:
    (line,) = offences("m.py", "\n" + _function(FUNCTION_LINES + 1))
    assert line.startswith(f"m.py:2: long has {FUNCTION_LINES + 1} lines")


def test_a_module_over_the_limit_is_named() -> None:
    (line,) = offences("m.py", "x = 1\n" * (MODULE_LINES + 1))
    assert f"{MODULE_LINES + 1} lines" in line
    assert list(offences(f"{GENERATED}m.py", "x = 1\n" * (MODULE_LINES + 1))) == []


def _room(directory: str, modules: int) -> list[Path]:
    return [Path(directory, f"m{number}.py") for number in range(modules)]


def test_a_room_over_the_limit_is_named_but_for_those_that_may_be_larger() -> None:
    rooms = [*_room("src/a", ROOM_MODULES), Path("src/a/__init__.py"), *_room("src/b", ROOM_MODULES + 1)]
    (line,) = flat_rooms([*rooms, *_room(FLAT[0], ROOM_MODULES + 1)])
    assert line.startswith("src/b: 25 modules")
