"""Options that travel together, as one value: a parameter of a command whose type is a dataclass stands for its fields.

``grouped`` shows typer a signature with a group's fields in the place of the group, and makes the group of what typer
read. Commands of a ``CommandGroup`` are grouped::

    @app.command("list")
    def list_(cluster: ClusterOptions = ClusterOptions(), as_json: AsJson = False) -> None: ...

Fields are annotated as parameters are, and have the values of the group's default. The names of all options of a
command must differ.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, cast, get_type_hints

import typer
from typer.models import CommandFunctionType


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer sees it: each group replaced by its fields."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, tuple[type, list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        group = hints[name]
        if dataclasses.is_dataclass(group) and isinstance(group, type):
            fields = _fields(group, parameter.default)
            groups[name] = group, [field.name for field in fields]
            parameters += fields
        else:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def with_groups(**options: Any) -> None:
        made = {
            name: group(**{field: options.pop(field) for field in fields}) for name, (group, fields) in groups.items()
        }
        command(**options, **made)

    with_groups.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # inspect reads it
    with_groups.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_groups


def _fields(group: type, default: object) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=getattr(default, field.name),
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(group)
    ]


class CommandGroup(typer.Typer):
    """A group of sub-commands whose parameters may be option groups."""

    def __init__(self, summary: str | None = None) -> None:
        super().__init__(
            help=summary,
            rich_markup_mode=None,
            add_completion=False,
            pretty_exceptions_enable=False,
            no_args_is_help=summary is not None,
        )

    def command(self, name: str | None = None, **settings: Any) -> Callable[[CommandFunctionType], CommandFunctionType]:
        declare = super().command(name, **settings)
        return lambda function: cast("Any", declare(grouped(function)))
