"""Reads a plain command line from a table of options, without typer's machinery.

Why: importing typer takes as long as importing asyncio, and where pydantic is installed typer checks values with it,
which a broker would keep in memory (12 MB of 55, measured) for as long as it runs. The rule: only plain options are
read here; for help, mistakes and anything else the result is None, and typer takes over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class PlainOption(NamedTuple):
    """An option of a command: the parameter it sets, and the type of its value; ``bool`` is a flag without one."""

    parameter: str
    kind: type
    repeats: bool = False
    """True if the values of several such options make a list; else the last one wins."""


def read_plainly(options: Mapping[str, PlainOption], arguments: Sequence[str]) -> dict[str, Any] | None:
    """The keyword arguments that ``arguments`` give a command; None where they are not plain options of it.

    A value follows its option, as the next word or after ``=``.
    """
    values: dict[str, Any] = {}
    words = iter(arguments)
    for word in words:
        name, equals, inline = word.partition("=") if word.startswith("--") else (word, "", "")
        option = options.get(name)
        if option is None:
            return None
        if option.kind is bool:
            if equals:
                return None
            values[option.parameter] = True
            continue
        text = inline if equals else next(words, None)
        if text is None or (not equals and text.startswith("-")) or (option.kind is Path and not text):
            return None
        try:
            value = option.kind(text)
        except ValueError:
            return None
        values[option.parameter] = [*values.get(option.parameter, ()), value] if option.repeats else value
    return values
