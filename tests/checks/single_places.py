"""Refuses what one module of `src` does for all: `python -m tests.checks.single_places` prints the offenders.

Text leaves through the terminal's module, which escapes it; Python is started by one helper, without the working
directory on its path; words of commands to copy are quoted by one helper.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.checks.sizes import ROOT

_TERMINAL: Final = "src/oncelog/cli/support/terminal.py"
_STREAMS: Final = ("sys.stdout", "sys.stderr")
_WORKER: Final = "src/oncelog/console/formats/decoder_worker.py"
PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "print": (_TERMINAL,),
    **{f"typer.{name}": (_TERMINAL,) for name in ("echo", "secho", "prompt", "confirm", "style")},
    **{f"{stream}.{name}": (_TERMINAL,) for stream in _STREAMS for name in ("write", "writelines")},
    **{f"{stream}.buffer": ("src/oncelog/cli/records/record_output.py", _WORKER) for stream in _STREAMS},
    "logging.basicConfig": (_TERMINAL,),
    "sys.executable": ("src/oncelog/base/python_process.py",),
    "shlex.quote": ("src/oncelog/base/notation/shell_words.py",),
    "shlex.join": (),
}
"""Names, each with the modules that may use it."""


def offences(name: str, source: str) -> Iterator[str]:
    """One line for every use of a name of ``PLACES`` in another module."""
    for node in ast.walk(ast.parse(source)):
        used = _dotted(node)
        if used in PLACES and name not in PLACES[used]:
            yield f"{name}:{getattr(node, 'lineno', 0)}: {used} is for {' and '.join(PLACES[used]) or 'nobody'}"


def _dotted(node: ast.AST) -> str:
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute(value=ast.Name() | ast.Attribute()):
            return f"{_dotted(node.value)}.{node.attr}"
        case _:
            return ""


def main() -> int:
    """Print the offenders; 1 when there are any."""
    files: list[Path] = sorted((ROOT / "src").rglob("*.py"))
    result = [line for path in files for line in offences(str(path.relative_to(ROOT)), path.read_text("utf-8"))]
    for line in result:
        print(line, file=sys.stderr)
    return 1 if result else 0


if __name__ == "__main__":
    sys.exit(main())
