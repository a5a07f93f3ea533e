"""Programs of tests: functions that stand in for programs of the client or of administration."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def program_of(function: Callable[P, T]) -> Callable[P, Generator[Any, Any, T]]:
    """A program without steps whose result is that of ``function``."""

    def program(*arguments: P.args, **keywords: P.kwargs) -> Generator[Any, Any, T]:
        yield from ()
        return function(*arguments, **keywords)

    return program


def result_of(steps: Generator[Any, Any, T]) -> T:
    """The result of steps, driven to their end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
