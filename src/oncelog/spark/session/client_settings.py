"""Settings of the clients that Spark's processes open, from the options that begin with ``kafka.``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from oncelog.client.config import ClientConfig
from oncelog.spark.session.errors import OptionError

PATIENCE: Final = {"bootstrap.timeout.ms": "10000"}
"""A task, and each planning and committing process, opens a client of its own: one that begins while the only broker is
started anew waits for it, where a tool in a terminal says after two seconds that nobody is there."""


def client_config(given: Mapping[str, str]) -> ClientConfig:
    """The settings in ``given``, by Apache Kafka's names, over Spark's defaults. Raises ConfigError."""
    return ClientConfig.from_properties({**PATIENCE, **given})


class GivenOptions(NamedTuple):
    """The options of a source or a sink as they were given."""

    options: dict[str, str]
    """Every option, by its name in lower case."""
    client: dict[str, str]
    """Settings of the client: the options that begin with ``kafka.``, without it."""
    bootstrap_servers: str


def given_options(given: Mapping[str, str], role: str, refused: Mapping[str, str]) -> GivenOptions:
    """Sort options out. ``refused``: keys of the client that have no effect here, and what to do instead; ``role``: of
    the client, ``consumer`` or ``producer``. Raises OptionError for one of these, and for want of brokers."""
    options = {name.lower(): str(value) for name, value in given.items()}
    client = {name[len("kafka.") :]: value for name, value in options.items() if name.startswith("kafka.")}
    for name, instead in refused.items():
        if name in client:
            raise OptionError(f"Kafka option '{name}' is not supported: {instead}")
    servers = client.get("bootstrap.servers")
    if not servers:
        raise OptionError(f"Option 'kafka.bootstrap.servers' must be specified for configuring Kafka {role}")
    return GivenOptions(options, client, servers)
