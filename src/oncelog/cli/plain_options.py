"""Reads a plain command line from a command function's own annotations, without typer's machinery.

Why: typer checks values with pydantic, which a broker would keep in memory (12 MB of 55, measured) for as long as it
runs. The rule: only plain options are read here; for help, mistakes and anything else the result is None, and typer
takes over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

_READERS: Final[dict[Any, Callable[[str], Any]]] = {str | None: str, list[str] | None: str, Path | None: Path}


def read_plainly(function: Callable[..., Any], arguments: Sequence[str]) -> dict[str, Any] | None:
    """The keyword arguments that ``arguments`` give ``function``; None where they are not plain options of it.

    Options are strings, paths, flags, or lists of strings; a value follows its option, as the next word or after ``=``.
    """
    options = _options(function)
    values: dict[str, Any] = {}
    words = iter(arguments)
    for word in words:
        name, equals, inline = word.partition("=") if word.startswith("--") else (word, "", "")
        parameter, kind = options.get(name, ("", None))
        if kind is bool and not equals:
            values[parameter] = True
            continue
        text = inline if equals else next(words, None)
        if kind not in _READERS or text is None or (not equals and text.startswith("-")):
            return None
        value = _READERS[kind](text)
        values[parameter] = [*values.get(parameter, ()), value] if get_args(kind)[0] == list[str] else value
    return values


def _options(function: Callable[..., Any]) -> dict[str, tuple[str, Any]]:
    """Option names, as typer would give them → parameter and type."""
    found = {}
    for parameter, hint in get_type_hints(function, include_extras=True).items():
        if parameter == "return":
            continue
        kind, information = get_args(hint)
        named = [one for one in (information.default, *(information.param_decls or ())) if isinstance(one, str)]
        for name in named or [f"--{parameter.replace('_', '-')}"]:
            found[name] = (parameter, kind)
    return found
