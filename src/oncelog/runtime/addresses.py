"""``HOST:PORT`` as people write it, and Kafka's ``listeners``."""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.core.configs.kinds import ConfigError

Address = tuple[str, int]


def parse_address(text: str) -> Address:
    """``host:port``, ``:port`` or ``[v6]:port``. Raises ConfigError."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{text}: not an address, write HOST:PORT", key="listen", value=text)
    return host.removeprefix("[").removesuffix("]"), int(port)


def parse_listeners(listeners: Sequence[str]) -> Address:
    """The address of the one listener, ``PLAINTEXT://host:port``. Raises ConfigError for what is not supported."""
    if len(listeners) != 1:
        raise ConfigError.of_value("listeners", ",".join(listeners), "One listener is supported")
    protocol, separator, address = listeners[0].partition("://")
    if not separator or protocol.upper() != "PLAINTEXT":
        raise ConfigError.of_value("listeners", listeners[0], "Only PLAINTEXT://host:port is supported")
    return parse_address(address)
