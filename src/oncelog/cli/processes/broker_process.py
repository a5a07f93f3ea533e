"""``oncelog serve``'s broker in the foreground: its options, settings and log. Imports no typer."""

from __future__ import annotations

import gc
import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from oncelog.cli.processes.command_options import CommandOption
from oncelog.cli.support.terminal import log_to_stderr, print_line

if TYPE_CHECKING:
    from oncelog.cli.processes.registry_child import RegistryChild

EXIT_REFUSED: Final = 1
OPTIONS: Final = (
    CommandOption(
        "data_dir", Path, "DIR", "Where the logs live; created if missing. Default: log.dirs, or ./oncelog-data."
    ),
    CommandOption("listen", str, "HOST:PORT", "Address to listen on; port 0 takes a free one."),
    CommandOption("config", Path, "FILE", "A properties file with Apache Kafka's keys, as server.properties."),
    CommandOption(
        "env_prefix",
        str,
        "PREFIX",
        "Take keys from environment variables, too: with KAFKA_, node.id from KAFKA_NODE_ID; they win over --config.",
    ),
    CommandOption("option", str, "KEY=VALUE", "One key of the configuration; wins.", repeats=True, spelled=("-o",)),
    CommandOption("http", str, "HOST:PORT", "Serve /metrics (Prometheus) and /health here."),
    CommandOption(
        "registry", str, "HOST:PORT", "Serve a schema registry here, in a child process (needs oncelog[registry])."
    ),
    CommandOption(
        "registry_config",
        Path,
        "FILE",
        "Client settings by which the registry uses a secured broker (--command-config).",
    ),
    CommandOption("verbose", bool, None, "Log more.", spelled=("--verbose", "-v")),
)


def run_broker(
    *,
    data_dir: Path | None = None,
    listen: str | None = None,
    config: Path | None = None,
    env_prefix: str | None = None,
    option: Sequence[str] = (),
    http: str | None = None,
    registry: str | None = None,
    registry_config: Path | None = None,
    verbose: bool = False,
) -> int:
    """Runs a broker until a signal and returns the exit code. A refused start is printed to stderr."""
    gc.disable()  # modules are no garbage: traversing them while they load takes a tenth of the start
    from oncelog.node.assembly import StartRefused
    from oncelog.node.listeners.broker_settings import ConfigError, parse_address, read_settings
    from oncelog.runtime.process import run_until_signalled
    from oncelog.runtime.security.config_providers import resolve_references

    gc.enable()

    log_to_stderr(logging.DEBUG if verbose else logging.INFO, "%(asctime)s %(levelname)-7s %(message)s")
    try:
        settings = read_settings(
            resolve_references(read_values(config, env_prefix, option)),
            data_directory=None if data_dir is None else str(data_dir.absolute()),
            listen=None if listen is None else parse_address(listen),
        )
        child = None if registry is None else _registry_child(registry, registry_config)
        try:
            return run_until_signalled(
                settings,
                http=http,
                announce=lambda line: print_line(line, flush=True),
                on_ready=lambda address: None if child is None else child.start(address),
            )
        finally:
            if child is not None:
                child.end()
    except (ConfigError, StartRefused) as error:
        print_line(f"oncelog: {error}", err=True)
        return EXIT_REFUSED


def _registry_child(listen: str, client_config: Path | None) -> RegistryChild:
    # Only here: a broker without a registry starts no process.
    from oncelog.cli.processes.registry_child import RegistryChild

    return RegistryChild(listen, client_config)


def read_values(properties: Path | None, env_prefix: str | None, options: Sequence[str]) -> dict[str, str]:
    """Keys and values of a properties file, variables and ``-o``, which wins."""
    from oncelog.cli.support.properties_file import PropertiesError, read_properties_file
    from oncelog.node.assembly import StartRefused

    values: dict[str, str] = {}
    if properties is not None:
        try:
            values.update(read_properties_file(properties))
        except PropertiesError as error:
            raise StartRefused(str(error)) from None
    if env_prefix == "":
        raise StartRefused("--env-prefix is empty: give it the beginning of names, such as KAFKA_")
    if env_prefix is not None:
        values.update(values_of_environment(os.environ, env_prefix))
    for option in options:
        key, separator, value = option.partition("=")
        if not separator or not key:
            raise StartRefused(f"-o {option} has no key or value; write -o key=value")
        values[key.strip()] = value.strip()
    return values


def values_of_environment(environ: Mapping[str, str], prefix: str) -> dict[str, str]:
    # As the image apache/kafka reads its variables.
    marks = {"_": ".", "__": "_", "___": "-"}
    return {
        re.sub("___?|_", lambda match: marks[match[0]], name.removeprefix(prefix).lower()): value.strip()
        for name, value in environ.items()
        if name.startswith(prefix) and name != prefix
    }
