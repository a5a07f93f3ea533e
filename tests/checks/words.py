"""Counts words that say nothing, room by room: the counts in `words.txt` may only fall.

`python -m tests.checks.words` fails when a room has more of them than its row allows, and prints where they are.
`python -m tests.checks.words --record` writes the counts of today. What is counted:

- ``identifiers``: variables, attributes and parameters with a name of ``EMPTY``, which does not say what the value is;
- ``phrases``: texts with a phrase of ``PHRASES``, sentences that begin with an ``OPENING``, docstrings with a ``HEAD``;
- ``docstrings``: words in docstrings;
- ``messages``: error messages that cannot say what was asked and what is wrong, because they are too short.

In tests, benchmarks and the console's templates only identifiers count.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "oncelog"
RECORD = Path(__file__).with_suffix(".txt")
KINDS = ("identifiers", "phrases", "docstrings", "messages")
EMPTY = {"one", "found", "where", "wanted", "asked", "each", "known", "said", "what", "there"}
PHRASES = re.compile(
    r"\b(nobody|whoever|somebody|anew|no more(?! than)|of which|is told|are told|there is none|what is)\b",
    re.IGNORECASE,
)
OPENING = re.compile(r"(?:^|(?<=[.:!?] ))(Who|Whoever|Nobody|Somebody|What|That|Those|Of which|There is none)\b")
HEAD = re.compile(r"(Whether|Whose|As|It|Its|Where|All that|Of) ")
FEWEST_WORDS = 4
GENERATED = {"kafka_documentation.py", "kafka_keys.py"}
DOCUMENTS = ("README.md", "docs/**/*.md")
ONLY_IDENTIFIERS = ("tests", "bench")


class Find(NamedTuple):
    """A place that counts: its kind, its file and line, and how much it adds."""

    kind: str
    place: str
    text: str
    count: int = 1


def finds_of(name: str, source: str) -> Iterator[Find]:
    """Yield everything that counts in one module."""
    yield from identifiers_of(name, source)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from _phrases(f"{name}:{token.start[0]}", token.string.lstrip("# "))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring, place = ast.get_docstring(node) or "", f"{name}:{getattr(node, 'lineno', 1)}"
            yield Find("docstrings", place, "", len(docstring.split()))
            if HEAD.match(docstring):
                yield Find("phrases", place, docstring.partition("\n")[0])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield from _phrases(f"{name}:{node.lineno}", node.value)
        elif isinstance(node, ast.Raise) and _is_too_short(node):
            yield Find("messages", f"{name}:{node.lineno}", ast.unparse(node))


def identifiers_of(name: str, source: str) -> Iterator[Find]:
    """Yield the names in one module that do not say what the value is."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and token.string in EMPTY:
            yield Find("identifiers", f"{name}:{token.start[0]}", token.string)


def names_of_template(name: str, source: str) -> Iterator[Find]:
    """Yield the same of one Jinja template."""
    for line, kind, token in Environment().lex(source):
        if kind == "name" and token in EMPTY:
            yield Find("identifiers", f"{name}:{line}", token)


def _phrases(place: str, text: str) -> Iterator[Find]:
    text = " ".join(text.split())
    for match in [*PHRASES.finditer(text), *OPENING.finditer(text)]:
        yield Find("phrases", place, text[max(0, match.start() - 20) : match.end() + 30])


def _is_too_short(node: ast.Raise) -> bool:
    """True for texts alone that have fewer words than a message needs. AssertionError is for us, not for users."""
    if not isinstance(node.exc, ast.Call) or not node.exc.args or ast.unparse(node.exc.func) == "AssertionError":
        return False
    texts = [argument.value for argument in node.exc.args if isinstance(argument, ast.Constant)]
    if len(texts) < len(node.exc.args) or not all(isinstance(text, str) for text in texts):
        return False
    return len(" ".join(texts).split()) < FEWEST_WORDS


def all_finds() -> Iterator[tuple[str, Find]]:
    """Yield the room and the find, for everything that counts in sources, tests, benchmarks, README and docs."""
    for path in sorted(SOURCES.rglob("*.py")):
        parts = path.relative_to(SOURCES).parts
        if path.name not in GENERATED and parts[:2] != ("wire", "messages"):
            room = parts[0] if len(parts) > 1 else "oncelog"
            yield from ((room, find) for find in finds_of(str(path.relative_to(ROOT)), path.read_text()))
    for room in ONLY_IDENTIFIERS:
        for path in sorted((ROOT / room).rglob("*.py")):
            yield from ((room, find) for find in identifiers_of(str(path.relative_to(ROOT)), path.read_text()))
    for path in sorted(SOURCES.rglob("templates/*.html")):
        yield from (("templates", find) for find in names_of_template(str(path.relative_to(ROOT)), path.read_text()))
    for pattern in DOCUMENTS:
        for path in sorted(ROOT.glob(pattern)):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                yield from (("docs", find) for find in _phrases(f"{path.relative_to(ROOT)}:{number}", line))


def totals(finds: list[tuple[str, Find]]) -> dict[tuple[str, str], int]:
    """The counts by room and kind."""
    counts: Counter[tuple[str, str]] = Counter()
    for room, find in finds:
        counts[room, find.kind] += find.count
    return dict(counts)


def read_record(text: str) -> dict[tuple[str, str], int]:
    """The counts of a record, whose first line names the kinds."""
    heading, *rows = [line.split() for line in text.splitlines() if line]
    return {(row[0], kind): int(count) for row in rows for kind, count in zip(heading[1:], row[1:], strict=True)}


def write_record(counts: Mapping[tuple[str, str], int]) -> str:
    """The text of a record."""
    rows = [("room", *KINDS)]
    rows += [
        (room, *(str(counts.get((room, kind), 0)) for kind in KINDS)) for room in sorted({key[0] for key in counts})
    ]
    return "".join(f"{row[0]:<14}" + "".join(f"{value:>13}" for value in row[1:]) + "\n" for row in rows)


def problems(finds: list[tuple[str, Find]], allowed: Mapping[tuple[str, str], int]) -> list[str]:
    """One text for each count that has risen, with the first places of its kind."""
    places: dict[tuple[str, str], list[Find]] = defaultdict(list)
    for room, find in finds:
        places[room, find.kind].append(find)
    return [
        "\n".join(
            [
                f"{room}: {count} {kind}, {allowed.get((room, kind), 0)} allowed",
                *(f"    {find.place}: {find.text}" for find in places[room, kind] if kind != "docstrings"),
            ]
        )
        for (room, kind), count in sorted(totals(finds).items())
        if count > allowed.get((room, kind), 0)
    ]


def main() -> int:
    """Print every count that has risen; 1 when there are any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--record", action="store_true", help="write the counts of today into words.txt")
    parser.add_argument("--list", metavar="ROOM", help="print every place that counts in a room")
    options = parser.parse_args()
    result = list(all_finds())
    if options.list:
        print(*(f"{find.place}: {find.text}" for room, find in result if room == options.list and find.text), sep="\n")
    if options.record:
        RECORD.write_text(write_record(totals(result)))
    risen = problems(result, read_record(RECORD.read_text()))
    print(*risen, sep="\n", file=sys.stderr, end="\n" if risen else "")
    return 1 if risen else 0


if __name__ == "__main__":
    sys.exit(main())
