"""Refuses modules, functions and rooms that are too large: `python -m tests.checks.sizes` prints the offenders."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

MODULE_LINES: Final = 500
FUNCTION_LINES: Final = 60
ROOM_MODULES: Final = 24
FLAT: Final = ("src/oncelog/handlers", "src/oncelog/wire/messages")
"""Rooms that may have more modules: one for each API of the protocol."""
GENERATED: Final = "src/oncelog/wire/messages/"
ROOT: Final = Path(__file__).resolve().parents[2]
FOLDERS: Final = ("src", "tests", "codegen", "bench", "demo")


def python_files() -> Iterator[Path]:
    """Every Python file of the project, in path order."""
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).rglob("*.py"))


def offences(name: str, source: str) -> Iterator[str]:
    """One line for every module or function of `source` that is too long."""
    lines = source.count("\n")
    if lines > MODULE_LINES and not name.startswith(GENERATED):
        yield f"{name}: {lines} lines, a module has at most {MODULE_LINES}: split it"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{name}:{node.lineno}: {node.name} has {length} lines, a function has at most {FUNCTION_LINES}"


def flat_rooms(paths: Iterable[Path]) -> Iterator[str]:
    """One line for every directory below `src` that has too many of the modules at `paths` in one level."""
    rooms = Counter(path.parent.as_posix() for path in paths if path.parts[0] == "src" and path.name != "__init__.py")
    for room, count in sorted(rooms.items()):
        if count > ROOM_MODULES and room not in FLAT:
            yield f"{room}: {count} modules, a room has at most {ROOM_MODULES} in one level: give it rooms of its own"


def main() -> int:
    """Print the offenders; 1 when there are any."""
    paths = [path.relative_to(ROOT) for path in python_files()]
    result = [line for path in paths for line in offences(str(path), (ROOT / path).read_text("utf-8"))]
    result.extend(flat_rooms(paths))
    for line in result:
        print(line, file=sys.stderr)
    return 1 if result else 0


if __name__ == "__main__":
    sys.exit(main())
