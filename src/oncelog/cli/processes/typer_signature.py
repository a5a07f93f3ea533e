"""Declares a table of options to typer, for help and for command lines that are not plain."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from oncelog.cli.processes.command_options import CommandOption
from oncelog.cli.support.options import directory


def with_options(options: Sequence[CommandOption]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Shows typer a command's ``**values`` as these options, before other parameters. Absent values are left out."""

    def declare(command: Callable[..., None]) -> Callable[..., None]:
        parameters = [_parameter(option) for option in options]
        parameters += [
            parameter.replace(kind=parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(command).parameters.values()
            if parameter.kind is not parameter.VAR_KEYWORD
        ]

        @functools.wraps(command)
        def with_values(**values: Any) -> None:
            command(**{name: value for name, value in values.items() if value is not None})

        with_values.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
        with_values.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return with_values

    return declare


def _parameter(option: CommandOption) -> inspect.Parameter:
    checks = dict(option.checks)
    if option.bounds is not None:
        checks["min"], checks["max"] = option.bounds
    if option.kind is Path and option.metavar == "DIR" and not checks:
        checks["parser"] = directory  # its name must not be empty
    kind = list[option.kind] if option.repeats else option.kind  # type: ignore[name-defined]  # a type as a value
    declared = typer.Option(*option.names, metavar=option.metavar, help=option.help, envvar=option.envvar, **checks)
    default = False if option.kind is bool else option.default
    return inspect.Parameter(
        option.parameter,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind if default is not None else kind | None, declared],
    )
