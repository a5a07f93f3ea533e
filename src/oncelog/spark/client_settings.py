"""Settings of the clients that Spark's processes open, from the options that begin with ``kafka.``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog.client.config import ClientConfig

PATIENCE: Final = {"bootstrap.timeout.ms": "10000"}
"""A task, and each planning and committing process, opens a client of its own: one that begins while the only broker is
started anew waits for it, where a tool in a terminal says after two seconds that nobody is there."""


def client_config(given: Mapping[str, str]) -> ClientConfig:
    """The settings in ``given``, by Apache Kafka's names, over Spark's defaults. Raises ConfigError."""
    return ClientConfig.from_properties({**PATIENCE, **given})
