"""The size check itself: what it refuses and what it lets pass."""

from __future__ import annotations

from tests.checks.sizes import FUNCTION_LINES, MODULE_LINES, offences


def _function(lines: int) -> str:
    return "def long():\n" + "    pass\n" * (lines - 1)


def test_functions_and_modules_at_the_limit_pass() -> None:
    assert list(offences("m.py", _function(FUNCTION_LINES))) == []
    assert list(offences("m.py", "x = 1\n" * MODULE_LINES)) == []


def test_a_function_over_the_limit_is_named_with_its_line() -> None:
    (line,) = offences("m.py", "\n" + _function(FUNCTION_LINES + 1))
    assert line.startswith("m.py:2: long has 71 lines")


def test_a_module_over_the_limit_is_named() -> None:
    (line,) = offences("m.py", "x = 1\n" * (MODULE_LINES + 1))
    assert "801 lines" in line
