"""Attributes that code names by a string: types do not see them, so a rename would leave them behind.

`patched` are those that tests and mutants replace; `unset_slots` are entries of ``__slots__`` that nothing sets.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from typing import Any


def patched(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every attribute of oncelog that is replaced by its name: ``setattr(owner, "name", …)``,
    ``setattr("owner.name", …)`` or ``Mutant(…, owner, "name", …)``. Owners are names that the module imports."""
    imported = dict(_imported(tree))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func).rpartition(".")[2]
        arguments = node.args[2:4] if called == "Mutant" else node.args[:2] if called == "setattr" else []
        match arguments:
            case [ast.Constant(value=str(path)), _] if path.startswith("oncelog."):
                yield node.lineno, path
            case [owner, ast.Constant(value=str(name))]:
                root, _, rest = ast.unparse(owner).partition(".")
                if root in imported:
                    yield node.lineno, ".".join(part for part in (imported[root], rest, name) if part)


def exists(path: str) -> bool:
    """True if a dotted name is a module or an attribute of one."""
    value: Any = import_module("oncelog")
    module = "oncelog"
    for name in path.split(".")[1:]:
        module += f".{name}"
        try:
            value = getattr(value, name)
        except AttributeError:
            # A test that imported the module in a world of its own may have taken the attribute away.
            try:
                value = import_module(module)
            except ImportError:
                return False
    return True


def unset_slots(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of every entry of ``__slots__`` that nothing in the module assigns as an attribute."""
    stored = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__":
            names = set(ast.literal_eval(node.value)) - stored - {"__weakref__"}
            yield from ((node.lineno, name) for name in sorted(names))


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("oncelog"):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"
