"""A group of options is one parameter for the command, and its fields are options for whoever calls it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer

from oncelog.cli.support.option_groups import grouped

Name = Annotated[str, typer.Argument(metavar="NAME")]
Host = Annotated[str, typer.Option("--host", "-h", help="A host.")]
Ports = Annotated[list[int] | None, typer.Option("--port", help="A port; may be repeated.")]
Quiet = Annotated[bool, typer.Option("--quiet")]


@dataclass(frozen=True)
class Server:
    host: Host = "localhost"
    port: Ports = None


@dataclass(frozen=True)
class SecureServer(Server):
    quiet: Quiet = False


seen: list[tuple[object, ...]] = []


@grouped
def plain(name: Name, server: Server = Server("there"), as_json: bool = False) -> None:
    """Do something."""
    seen.append((name, server, as_json))


@grouped
def inherited(server: SecureServer = SecureServer()) -> None:
    """Do something else."""
    seen.append((server,))


def command_of(function: Any) -> Any:
    app = typer.Typer(add_completion=False)
    app.command()(function)
    return typer.main.get_command(app)


def called(function: Any, *arguments: str) -> tuple[object, ...]:
    seen.clear()
    command_of(function).main(list(arguments), standalone_mode=False)
    return seen.pop()


def test_the_fields_stand_where_the_group_does() -> None:
    assert [param.name for param in command_of(plain).params] == ["name", "host", "port", "as_json"]
    assert list(inspect.signature(plain).parameters) == ["name", "host", "port", "as_json"]
    assert plain.__doc__ == "Do something."


def test_the_command_is_given_the_group() -> None:
    assert called(plain, "a") == ("a", Server("there"), False)
    assert called(plain, "a", "-h", "b", "--port", "1", "--port", "2", "--as-json") == ("a", Server("b", [1, 2]), True)


def test_a_group_has_the_fields_of_the_one_it_extends() -> None:
    assert called(inherited, "--quiet", "--host", "b") == (SecureServer("b", None, True),)


def test_an_option_that_two_groups_have_is_refused() -> None:
    def twice(server: Server = Server(), other: Server = Server()) -> None: ...

    with pytest.raises(ValueError, match="duplicate parameter name: 'host'"):
        grouped(twice)
