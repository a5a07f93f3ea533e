"""The options of a command as a table: plain command lines are read from it without typer.

Importing typer takes as long as importing asyncio, and where pydantic is installed typer checks values with it, which a
broker would keep in memory (12 MB of 55, measured). For help, mistakes and anything else the result is None, and typer
takes over (``typer_signature`` declares the same table to it).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

_PLAIN_KINDS: Final = (str, Path, bool, float)


class CommandOption(NamedTuple):
    """An option of a command: the parameter it sets and the type of its value; ``bool`` is a flag."""

    parameter: str
    kind: Any
    metavar: str | None
    help: str
    default: Any = None
    repeats: bool = False
    """True if the values of several such options make a list; else the last one wins."""
    spelled: tuple[str, ...] = ()
    """The names on the command line, where they do not follow from the parameter."""
    bounds: tuple[float, float] | None = None
    envvar: str | None = None
    checks: Mapping[str, Any] = MappingProxyType({})
    """Checks that typer makes, by its own names."""

    @property
    def names(self) -> tuple[str, ...]:
        return self.spelled or (f"--{self.parameter.replace('_', '-')}",)

    def parse(self, text: str) -> Any:
        """The value of ``text``. Raises ValueError for a value that typer has to judge."""
        if self.kind not in _PLAIN_KINDS or self.checks or (self.kind is Path and not text):
            raise ValueError(text)
        value = self.kind(text)
        if self.bounds is not None and not self.bounds[0] <= value <= self.bounds[1]:
            raise ValueError(text)
        return value


def read_plainly(options: Iterable[CommandOption], arguments: Sequence[str]) -> dict[str, Any] | None:
    """The keyword arguments of a command line, with values after their option or ``=``; None if typer has to parse
    it."""
    by_name = {name: option for option in options for name in option.names}
    if any(option.envvar in os.environ for option in by_name.values() if option.envvar is not None):
        return None
    values: dict[str, Any] = {}
    words = iter(arguments)
    for word in words:
        name, equals, inline = word.partition("=") if word.startswith("--") else (word, "", "")
        option = by_name.get(name)
        if option is None:
            return None
        if option.kind is bool:
            if equals:
                return None
            values[option.parameter] = True
            continue
        text = inline if equals else next(words, None)
        if text is None or (not equals and text.startswith("-")):
            return None
        try:
            value = option.parse(text)
        except ValueError:
            return None
        values[option.parameter] = [*values.get(option.parameter, ()), value] if option.repeats else value
    return values
