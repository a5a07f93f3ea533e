"""Options that several sub-commands share: the cluster, and the output format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncelog.cli.support.named_cluster import (
    BOOTSTRAP_NAMES,
    BOOTSTRAP_VARIABLE,
    COMMAND_CONFIG_VARIABLE,
    DEFAULT_BOOTSTRAP,
    cluster_options,
)
from oncelog.cli.support.offset_or_time import MomentError, parse_time_ms
from oncelog.cli.support.properties_file import PropertiesError, read_properties_file

if TYPE_CHECKING:
    from oncelog.client.blocking.client import Client

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Properties = Annotated[
    list[str] | None,
    typer.Option("--property", "-X", metavar="KEY=VALUE", help="A client setting by its Java name; may be repeated."),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        envvar=COMMAND_CONFIG_VARIABLE,
        metavar="FILE",
        help="A properties file with client settings; -X wins over it.",
    ),
]

REGISTRY_PREFIX = "schema.registry."


def directory(text: str) -> Path:
    """A directory from an option. Raises BadParameter for empty text (an unset shell variable), which would mean the
    working directory."""
    if not text:
        raise typer.BadParameter("the name of the directory is empty; for the working directory, give .")
    return Path(text)


@dataclass(frozen=True)
class ClusterOptions:
    bootstrap: Annotated[
        str,
        typer.Option(
            *BOOTSTRAP_NAMES,
            envvar=BOOTSTRAP_VARIABLE,
            metavar="HOST:PORT,…",
            help="Brokers to start from.",
        ),
    ] = DEFAULT_BOOTSTRAP
    properties: Properties = None
    command_config: CommandConfig = None

    def open_client(self) -> Client:
        """A client with shorter time-outs than a program would use. Raises BadParameter for an invalid property."""
        from oncelog.client.blocking.client import Client

        settings = {"bootstrap.timeout.ms": "1000", "default.api.timeout.ms": "15000", "request.timeout.ms": "15000"}
        settings |= {"socket.connection.setup.timeout.ms": "5000", "unknown.topic.grace.ms": "400"}
        servers, given = self.connection_settings()
        return Client(servers, config=settings | given)

    def connection_settings(self) -> tuple[str, dict[str, str]]:
        """The bootstrap servers (``--bootstrap-server`` wins over ``bootstrap.servers`` of ``--command-config`` or
        ``-X``) and the other client settings. Raises BadParameter."""
        settings = self.client_settings()
        servers = settings.pop("bootstrap.servers", self.bootstrap)
        return (servers if self.bootstrap == DEFAULT_BOOTSTRAP else self.bootstrap), settings

    def client_settings(self) -> dict[str, str]:
        """All client settings that are given. Raises BadParameter."""
        settings = client_settings(self.properties, self.command_config)
        return {name: value for name, value in settings.items() if not name.startswith(REGISTRY_PREFIX)}

    def registry_settings(self) -> dict[str, str]:
        """The settings of a schema registry among them. Raises BadParameter."""
        settings = client_settings(self.properties, self.command_config)
        return {name: value for name, value in settings.items() if name.startswith(REGISTRY_PREFIX)}

    def as_arguments(self) -> str:
        return cluster_options(self.bootstrap, self.properties, self.command_config)


@dataclass(frozen=True)
class AdminOptions(ClusterOptions):
    as_json: AsJson = False


def time_option(text: str | None, option: str) -> int | None:
    """The time of an option in ms, None if it is absent. Raises BadParameter."""
    try:
        return None if text is None else parse_time_ms(text)
    except MomentError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def settings_in(path: Path, option: str) -> dict[str, str]:
    """The settings in an option's properties file. Raises BadParameter."""
    try:
        return read_properties_file(path)
    except PropertiesError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def client_settings(properties: list[str] | None, command_config: Path | None) -> dict[str, str]:
    """The settings of ``--command-config`` and ``-X``. Raises BadParameter."""
    settings: dict[str, str] = {}
    if command_config is not None:
        settings |= settings_in(command_config, "--command-config")
    return settings | key_values(properties, "--property")


def key_values(given: list[str] | None, option: str) -> dict[str, str]:
    """``key=value`` arguments as a dict. Raises BadParameter for one without ``=``."""
    values: dict[str, str] = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=option)
        values[key] = value
    return values


def storage_options(given: list[str] | None) -> dict[str, str]:
    """``--storage-option`` as a dict. Raises BadParameter without the value, which may be a secret."""
    options: dict[str, str] = {}
    for text in given or ():
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise typer.BadParameter("expected KEY=VALUE, found no '='", param_hint="--storage-option")
        options[key] = value
    return options
