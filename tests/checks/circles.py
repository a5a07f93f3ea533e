"""Circles of imports between modules, those for types only too; `knots` prints them with its own."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = ROOT / "src"
BESIDE: Final = ("bench", "codegen", "demo")
"""Packages that stand beside ``src``."""


def modules(sources: Path, packages: Iterable[str] = (".",)) -> dict[str, ast.Module]:
    """The syntax trees of all modules in ``packages`` below ``sources``, by dotted name; a package has its own name."""
    results = {}
    for path in sorted(path for package in packages for path in (sources / package).rglob("*.py")):
        parts = path.relative_to(sources).with_suffix("").parts
        results[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text("utf-8"))
    return results


def imports(trees: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    """The modules among ``trees`` that each one names in an import, wherever the statement stands."""
    return {name: sorted(set(_imported(tree, trees)) - {name}) for name, tree in trees.items()}


def _imported(tree: ast.Module, modules: Mapping[str, ast.Module]) -> Iterator[str]:
    for node in _statements(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield from (name for name in (full if full in modules else node.module,) if name in modules)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements below ``tree``. Expressions, which are most of it, hold none."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        nested = getattr(tree, block, ())
        for node in nested if isinstance(nested, list) else ():
            yield node
            yield from _statements(node)


def circles(graph: Mapping[str, list[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan), each sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    results: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in graph[module]:
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            start = stack.index(module)
            if len(stack) - start > 1:
                results.append(sorted(stack[start:]))
            del stack[start:]

    for module in sorted(graph):
        if module not in index:
            visit(module)
    return results
