"""Refuses circles of modules, and knots: boxes of a room, modules or packages, that import each other in a ring.

Modules that form no circle may still tie the packages around them into a ring, of which nothing can be read or replaced
alone. A part that has a row of its own in `.importlinter` is a box of the house. `python -m tests.checks.knots` prints
every circle, and each ring with the imports that make it.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import NamedTuple

from tests.checks.circles import BESIDE, ROOT, SOURCES, circles, imports, modules
from tests.checks.contracts import row_of
from tests.checks.rooms import contracts


class Knot(NamedTuple):
    """Boxes of a room that reach each other, and the imports between them."""

    room: str
    boxes: list[str]
    imports: list[tuple[str, str]]


def knots(graph: Mapping[str, list[str]], parts: Collection[str] = ()) -> list[Knot]:
    """The knots of every package among the modules of ``graph``, which says what each one imports.

    ``parts`` are packages and modules, by their full names, that are boxes of the topmost package.
    """
    rooms = sorted({parent for name in graph if (parent := name.rpartition(".")[0])})
    return [knot for room in rooms for knot in _knots_of(room, graph, () if "." in room else parts)]


def _knots_of(room: str, graph: Mapping[str, list[str]], parts: Collection[str]) -> list[Knot]:
    def box(name: str) -> str:
        part = row_of(name, parts)
        return name[len(room) + 1 :].partition(".")[0] if part is None else part[len(room) + 1 :]

    box_of = {name: box(name) for name in graph if name.startswith(room + ".")}
    between = [
        (importer, imported)
        for importer, box in box_of.items()
        for imported in graph[importer]
        if box_of.get(imported, box) != box
    ]
    arrows: dict[str, set[str]] = {box: set() for box in box_of.values()}
    for importer, imported in between:
        arrows[box_of[importer]].add(box_of[imported])
    rings = circles({box: sorted(others) for box, others in arrows.items()})
    return [
        Knot(room, ring, sorted(pair for pair in between if all(box_of[name] in ring for name in pair)))
        for ring in rings
    ]


def problems(result: list[Knot]) -> list[str]:
    """One text for each knot."""
    return [
        "\n".join(
            [
                f"{knot.room}: {', '.join(knot.boxes)} import each other; move what they share below them",
                *(f"    {importer} imports {imported}" for importer, imported in knot.imports),
            ]
        )
        for knot in result
    ]


def main() -> int:
    """Print every problem; 1 when there are any."""
    graph = imports(modules(SOURCES) | modules(ROOT, BESIDE))
    texts = [f"modules that import each other: {', '.join(circle)}" for circle in circles(graph)]
    texts += problems(knots(graph, [f"oncelog.{row}" for row in contracts()["oncelog"] if "." in row]))
    print(*texts, sep="\n", file=sys.stderr, end="\n" if texts else "")
    return 1 if texts else 0


if __name__ == "__main__":
    sys.exit(main())
