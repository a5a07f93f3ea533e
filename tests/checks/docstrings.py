"""Refuses docstrings that do not name their subject: `python -m tests.checks.docstrings` prints them.

"What a run has committed" can be read only with the name above it; "Totals of a run: …" stands alone.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from tests.checks.sizes import ROOT, python_files

WORDS: Final = ("What", "Whether", "Where", "Which", "Who", "Whom", "Whose")
NO_SUBJECTS: Final = (*WORDS, "All of it", "All of them", "All that", "See the module")
FRAGMENTS: Final = ("As", "Between", "By", "Its", "Of", "Their", "Those", "Told", "Until")
"""Words that no docstring in `src` begins with; that of a test may go on with the sentence that is its name."""


def offences(name: str, source: str) -> Iterator[str]:
    """One line for every docstring of `source`, one of an attribute too, that begins without a subject."""
    for node in ast.walk(ast.parse(source)):
        for line, text in _docstrings(node):
            words = text.replace(",", " ").replace(".", " ").replace(":", " ").split()
            for start in (*NO_SUBJECTS, *FRAGMENTS) if name.startswith("src/") else NO_SUBJECTS:
                if words[: len(start.split())] == start.split():
                    yield f'{name}:{line}: a docstring begins with "{start}": name its subject'


def _docstrings(node: ast.AST) -> Iterator[tuple[int, str]]:
    body = getattr(node, "body", None)
    if not isinstance(body, list):
        return
    for before, statement in pairwise([None, *body]):
        match statement:
            case ast.Expr(value=ast.Constant(value=str() as text)) if before is None or _declares(before):
                yield statement.lineno, text


def _declares(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign | ast.AnnAssign)


def main() -> int:
    """Print the offenders; 1 when there are any."""
    files = list(python_files())
    result = [line for path in files for line in offences(str(path.relative_to(ROOT)), path.read_text("utf-8"))]
    for line in result:
        print(line, file=sys.stderr)
    return 1 if result else 0


if __name__ == "__main__":
    sys.exit(main())
