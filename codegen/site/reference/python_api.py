"""The reference of the public Python API: the names that ``tests.checks.public_surface`` records, with docstrings."""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import re
import textwrap
import types
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from tests.checks import public_surface
from tests.checks.public_surface import MODULES, signature

from codegen.site.reference.markdown import of_docstring, table

_REFERENCE: Final = re.compile(r"See (?::meth:)?`+~?(oncelog\.[\w.]+)`+\.")


def overview() -> str:
    """The page of all public modules."""
    rows = [(f"[`{name}`](python/{name}.md)", of_docstring(_summary(name))) for name in MODULES]
    return "\n\n".join(
        ["# Python API", "[Public surface](../public-surface.md) says what may change.", table(["module", ""], rows)]
    )


def _summary(name: str) -> str:
    return (importlib.import_module(name).__doc__ or "").partition("\n\n")[0]


def pages() -> Iterator[tuple[str, str]]:
    """Name and text of the page of each public module."""
    for name in MODULES:
        module = importlib.import_module(name)
        public = [item for item in public_surface.public_names(module) if not item.startswith("__")]
        values = [(item, getattr(module, item)) for item in public]
        described = [_described(item, value) for item, value in values if not isinstance(value, types.ModuleType)]
        heading = [f"# {name}", of_docstring(module.__doc__), f"```{{py:module}} {name}\n```"]
        yield name, "\n\n".join([*heading, *described])


def _described(name: str, value: Any) -> str:
    if isinstance(value, type):
        return _class(name, value)
    if callable(value):
        return _directive("function", f"{name}{_signature(value)}", of_docstring(value.__doc__))
    return _directive("data", name, "", f":value: {_shown(value)}")


def _class(name: str, value: type) -> str:
    """A class with its public methods; the docstrings under attributes belong to these."""
    kind = "exception" if issubclass(value, BaseException) else "class"
    text = "" if _is_generated(value) else of_docstring(value.__doc__)
    members = [_member(value, member) for member in public_surface.public_members(value)]
    if issubclass(value, enum.Enum):
        documented = _attribute_docstrings(value)
        members = [
            _directive(
                "attribute", member.name, of_docstring(documented.get(member.name)), f":value: {_shown(member.value)}"
            )
            for member in value
        ] + members
        return _directive(kind, name, "\n\n".join([text, *members]))
    return _directive(kind, f"{name}{_signature(value)}", "\n\n".join([text, _fields(value), *members]))


def _is_generated(value: type) -> bool:
    """True for a class without a docstring of its own."""
    text = value.__doc__ or ""
    inherited = next((base.__doc__ for base in value.__mro__[1:] if base.__doc__), None)
    return text.startswith(f"{value.__name__}(") or text == inherited


def _fields(value: type) -> str:
    documented = _attribute_docstrings(value)
    fields = inspect.signature(value).parameters if hasattr(value, "__match_args__") else {}
    rows = [(f"`{name}`", of_docstring(documented[name])) for name in fields if name in documented]
    return table(["field", ""], rows) if rows else ""


def _member(owner: type, name: str) -> str:
    member = inspect.getattr_static(owner, name)
    value = getattr(owner, name)
    if inspect.isroutine(value):
        options = [":classmethod:"] * isinstance(member, classmethod) + [":staticmethod:"] * isinstance(
            member, staticmethod
        )
        options += [":async:"] * inspect.iscoroutinefunction(value)
        return _directive("method", f"{name}{_signature(value)}", _docstring(value), *options)
    text = member.__doc__ if isinstance(member, property) else _attribute_docstrings(owner).get(name)
    return _directive("attribute", name, of_docstring(text))


def _attribute_docstrings(value: type) -> dict[str, str]:
    """The texts under the attributes of a class, in its source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(value)))
    except (OSError, TypeError):
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    result = {}
    for statement, following in pairwise(body):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        text = following.value if isinstance(following, ast.Expr) else None
        if isinstance(target, ast.Name) and isinstance(text, ast.Constant) and isinstance(text.value, str):
            result[target.id] = text.value
    return result


def _docstring(value: Any) -> str:
    """The docstring of a method, or of the method that it names: "See ``module.Class.method``."."""
    text = value.__doc__ or ""
    while match := _REFERENCE.fullmatch(text.strip()):
        path, _, name = match[1].rpartition(".")
        module, _, owner = path.rpartition(".")
        text = getattr(getattr(importlib.import_module(module), owner), name).__doc__ or ""
    return of_docstring(text)


def _signature(value: Any) -> str:
    return " ".join(signature(value).split())


def _shown(value: object) -> str:
    return " ".join(repr(value).split())[:200]


def _directive(kind: str, head: str, text: str, *options: str) -> str:
    """A description of Sphinx's Python domain, with a fence that is longer than those within."""
    longest = max(
        (len(line) - len(line.lstrip("`")) for line in text.splitlines() if line.startswith("```")), default=2
    )
    fence = "`" * (longest + 1)
    lines = [f"{fence}{{py:{kind}}} {head}", *options, "", text.strip(), fence]
    return "\n".join(lines)
