"""Proves that a change of words changed nothing else: two trees are equal but for names, texts and imports.

`python -m tests.checks.same_code OLD NEW [--moved MAP]` compares two checkouts module by module, first the syntax
trees and then the byte code. Docstrings and comments may differ freely, and so may literal texts: ``--texts`` prints
them for a reader to judge. Everything else has to be equal: statements, operators, numbers, the order of arguments.
Names may differ if the new ones mean the same: each load of a local variable must see the stores that the load in the
old tree saw, and each global name of a module must have one new name that no other has. A line of MAP is
`old.module new.module`.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import itertools
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.checks.reaching import Difference, compare_code

NAMES = {"id", "attr", "name", "arg", "asname", "rest", "module"}
"""Fields of nodes that hold an identifier."""
LISTS_OF_NAMES = {"names", "kwd_attrs"}
BODIES = ("body", "orelse", "finalbody")


class Renames(NamedTuple):
    """Names and texts that differ between two trees, with the number of places where they do."""

    names: Counter[tuple[str, str]]
    texts: Counter[tuple[str, str]]


def compare(old: str, new: str, renames: Renames) -> None:
    """Add the renames between two modules, given as source text. Raises Difference when anything else differs."""
    before, after = ast.parse(old), ast.parse(new)
    for tree in (before, after):
        for node in ast.walk(tree):
            _drop_words(node)
    _compare_nodes(before, after, renames)
    _compare_globals(before, after)
    compare_code(*(compile(_on_one_line(_NumberTexts().visit(tree)), "module", "exec") for tree in (before, after)))


def _compare_nodes(old: ast.AST, new: ast.AST, renames: Renames) -> None:
    if isinstance(old, ast.JoinedStr) or isinstance(new, ast.JoinedStr):
        if not all(_is_text(node) for node in (old, new)):
            raise Difference(f"{_place(old)}: {_kinds(old, new)}")
        if (texts := (ast.unparse(old), ast.unparse(new)))[0] != texts[1]:
            renames.texts[texts] += 1
        return
    if type(old) is not type(new):
        raise Difference(f"{_place(old)}: {_kinds(old, new)}")
    for field, value in ast.iter_fields(old):
        other = getattr(new, field)
        if not isinstance(value, list):
            _compare_values(old, field, value, other, renames)
        elif len(value) != len(other):
            raise Difference(f"{_place(old)}: {len(value)} {field} became {len(other)} in {type(new).__name__}")
        else:
            for was, now in zip(value, other, strict=True):
                _compare_values(old, field, was, now, renames)


def _compare_values(node: ast.AST, field: str, old: Any, new: Any, renames: Renames) -> None:
    if isinstance(old, ast.AST) and isinstance(new, ast.AST):
        _compare_nodes(old, new, renames)
    elif old == new and type(old) is type(new):
        return
    elif not (isinstance(old, str) and isinstance(new, str)):
        raise Difference(f"{_place(node)}: {field} {old!r} became {new!r}")
    elif field in NAMES or (field in LISTS_OF_NAMES and not isinstance(node, ast.Constant)):
        renames.names[old, new] += 1
    else:
        renames.texts[old, new] += 1


def _compare_globals(old: ast.Module, new: ast.Module) -> None:
    """Raises Difference for names of the module's own scope that became one, or that hide a builtin."""
    now_called: dict[str, str] = {}
    for was, now in zip(_own_names(old), _own_names(new), strict=True):
        if now_called.setdefault(was, now) != now:
            raise Difference(f"{was} of the module became {now_called[was]} and {now}")
        if was != now and hasattr(builtins, now):
            raise Difference(f"{was} of the module became {now}, which is a builtin")
    merged = [name for name, count in Counter(now_called.values()).items() if count > 1]
    if merged:
        raise Difference(f"names of the module became one: {', '.join(merged)}")


def _own_names(module: ast.Module) -> list[str]:
    names = []
    for statement in module.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(statement.name)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names += [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
    return names


def _drop_words(node: ast.AST) -> None:
    """Take docstrings, texts under constants and imports out of a node's bodies: linters refuse missing imports."""
    for field in BODIES:
        body = getattr(node, field, None)
        if isinstance(body, list) and body:
            kept = [item for item in body if not _is_word(item)]
            setattr(node, field, kept or ([ast.Pass()] if field == "body" else []))


def _is_word(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return isinstance(statement.value.value, str) or statement.value.value is ...
    return isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass)


class _NumberTexts(ast.NodeTransformer):
    """Replaces every text by its number in the module: only names and structure are left to compare."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.Constant:
        return ast.copy_location(ast.Constant(f"text {next(self._numbers)}"), node)

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.copy_location(
            ast.Constant(f"text {next(self._numbers)}" if isinstance(node.value, str) else node.value), node
        )


def _on_one_line(tree: ast.Module) -> ast.Module:
    """The tree without places: the compiler adds instructions that only keep lines apart."""
    for node in ast.walk(tree):
        for place in {"lineno", "end_lineno", "col_offset", "end_col_offset"} & set(node._attributes):
            setattr(node, place, 1)
    return tree


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _kinds(old: ast.AST, new: ast.AST) -> str:
    return f"{type(old).__name__} became {type(new).__name__}"


def _place(node: ast.AST) -> str:
    return f"line {getattr(node, 'lineno', '?')} of the old tree"


def sources(checkout: Path) -> dict[str, Path]:
    """The modules under `src`, by their full names."""
    root = checkout / "src"
    return {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted(root.rglob("*.py"))
    }


def compare_trees(old: Path, new: Path, moved: Mapping[str, str], renames: Renames) -> Iterator[str]:
    """Yield one line for each module that differs in more than words."""
    before, after = sources(old), sources(new)
    for name, path in before.items():
        other = after.pop(moved.get(name, name), None)
        if other is None:
            yield f"{name}: is gone"
            continue
        try:
            compare(path.read_text(), other.read_text(), renames)
        except Difference as difference:
            yield f"{moved.get(name, name)}: {difference}"
    yield from (f"{name}: is new" for name in after)


def main() -> int:
    """Print every difference; 1 when there are any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("old", type=Path, help="checkout before the change")
    parser.add_argument("new", type=Path, help="checkout after it")
    parser.add_argument("--moved", type=Path, help="file with a line `old.module new.module` for each moved module")
    parser.add_argument("--names", action="store_true", help="print the names that changed")
    parser.add_argument("--texts", action="store_true", help="print the texts that changed")
    options = parser.parse_args()
    lines = options.moved.read_text().splitlines() if options.moved else []
    renames = Renames(Counter(), Counter())
    differences = list(compare_trees(options.old, options.new, dict(line.split() for line in lines if line), renames))
    print(*differences, sep="\n", end="\n" if differences else "")
    for expected, changed in ((options.names, renames.names), (options.texts, renames.texts)):
        for (was, now), count in changed.most_common() if expected else []:
            print(f"{count} x {was!r}\n    {now!r}")
    print(
        f"{len(differences)} modules differ in more than words; "
        f"{len(renames.names)} names and {len(renames.texts)} texts changed",
        file=sys.stderr,
    )
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
