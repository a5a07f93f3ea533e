"""The settings a broker starts with, parsed from Kafka's configuration keys and checked; nothing is opened yet.

Listeners that admit unauthenticated clients from other hosts cause a warning, or with ``oncelog.require.security=true``
a refusal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple

from oncelog.base.security import PLAINTEXT_LISTENER, Endpoint, SecurityProtocol
from oncelog.core.configs.broker import BrokerConfig, parse_broker_config
from oncelog.core.configs.combinations import check_combinations
from oncelog.core.configs.kinds import ConfigError
from oncelog.core.configs.listeners import Listeners, read_listeners
from oncelog.core.configs.providers import Kind as Kind
from oncelog.core.configs.providers import Provider as Provider
from oncelog.core.configs.providers import resolve as resolve


class StoreUnusable(Exception):
    """A key or trust store cannot be used; the message says which, and what to do."""


KEY: Final = "oncelog.require.security"


def exposures(config: BrokerConfig, listeners: Listeners) -> Sequence[str]:
    """A warning for each listener that other hosts reach without authentication. Raises ConfigError where that is
    refused, and for invalid TLS settings."""
    warnings = [
        f"listener {endpoint} is reachable from other hosts without authentication: use SASL, or SSL with "
        "ssl.client.auth=required"
        for endpoint in listeners.endpoints
        if not _authenticates(config, endpoint) and not is_loopback(endpoint.host)
    ]
    if warnings and config.get(KEY):
        raise ConfigError(f"{KEY}=true: {warnings[0]}", key=KEY, value="true")
    return warnings


def is_loopback(host: str) -> bool:
    """True if only this host can reach the address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _authenticates(config: BrokerConfig, endpoint: Endpoint) -> bool:
    if not endpoint.protocol.has_tls:
        return endpoint.protocol.has_sasl
    from oncelog.node.listeners.tls import tls_settings

    tls = tls_settings(config, endpoint.listener_name, endpoint.protocol)
    return endpoint.protocol.has_sasl or tls.client_auth == "required"


__all__ = [
    "Address",
    "BrokerConfig",
    "ConfigError",
    "Listeners",
    "Settings",
    "parse_address",
    "read_settings",
]

# Host and port.
Address = tuple[str, int]

DEFAULT_DATA_DIRECTORY: Final = "oncelog-data"
DEFAULT_LISTEN: Final[Address] = ("127.0.0.1", 9092)


class Settings(NamedTuple):
    config: BrokerConfig
    data_directory: str
    listeners: Listeners
    warnings: Sequence[str] = ()
    """Warnings about the configuration, for the operator."""

    @property
    def listen(self) -> Address:
        """The first listener's address; port 0 takes a free one."""
        first = self.listeners.endpoints[0]
        return first.host, first.port


def read_settings(
    values: Mapping[str, str], *, data_directory: str | None = None, listen: Address | None = None
) -> Settings:
    """Settings from configuration keys, overridden by the arguments; ``listen`` defines a single PLAINTEXT listener.
    Raises ConfigError.
    """
    if listen is not None or "listeners" not in values:
        host, port = listen or DEFAULT_LISTEN
        values = {**values, "listeners": str(Endpoint(PLAINTEXT_LISTENER, SecurityProtocol.PLAINTEXT, host, port))}
    config, warnings = parse_broker_config(values)
    check_combinations(config)
    if data_directory is None:
        given = config.is_set("log.dirs") or config.is_set("log.dir")
        data_directory = config.data_directory if given else DEFAULT_DATA_DIRECTORY
    listeners = read_listeners(config)
    _check_sasl(config, listeners)
    return Settings(config, data_directory, listeners, [*warnings, *exposures(config, listeners)])


def _check_sasl(config: BrokerConfig, listeners: Listeners) -> None:
    """Check now what would otherwise fail at the first login. Raises ConfigError."""
    names = [endpoint.listener_name for endpoint in listeners.endpoints if endpoint.protocol.has_sasl]
    if names:
        from oncelog.core.sasl.settings import listener_sasl

        for name in names:
            listener_sasl(config, name)


def parse_address(text: str) -> Address:
    """``host:port``, ``:port`` or ``[v6]:port``. Raises ConfigError."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{text} is not an address: write HOST:PORT", key="listen", value=text)
    return host.removeprefix("[").removesuffix("]"), int(port)
