"""Refuses modules over 800 lines and functions over 70: `python -m tests.checks.sizes` prints the offenders."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MODULE_LINES: Final = 800
FUNCTION_LINES: Final = 70
ROOT: Final = Path(__file__).resolve().parents[2]
FOLDERS: Final = ("src", "tests", "codegen", "bench", "demo")


def python_files() -> Iterator[Path]:
    """Every Python file of the project, in path order."""
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).rglob("*.py"))


def offences(name: str, source: str) -> Iterator[str]:
    """One line for every module or function of `source` that is too long."""
    lines = source.count("\n")
    if lines > MODULE_LINES:
        yield f"{name}: {lines} lines, a module has at most {MODULE_LINES}: split it"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{name}:{node.lineno}: {node.name} has {length} lines, a function has at most {FUNCTION_LINES}"


def main() -> int:
    """Print the offenders; 1 when there are any."""
    found = [line for path in python_files() for line in offences(str(path.relative_to(ROOT)), path.read_text("utf-8"))]
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
