"""Listeners that let in anybody from outside: warned of, or refused with ``oncelog.require.security=true``."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

from oncelog.base.security import Endpoint
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.kinds import ConfigError
from oncelog.core.configs.listeners import Listeners

KEY: Final = "oncelog.require.security"


def exposures(config: BrokerConfig, listeners: Listeners) -> Sequence[str]:
    """A sentence for each listener that others than this host reach and where nobody has to say who it is. Raises
    ConfigError where that is refused, and for TLS that cannot be."""
    found = [
        f"listener {endpoint} is reached from other hosts and lets in anybody: use SASL, or SSL with "
        "ssl.client.auth=required"
        for endpoint in listeners.endpoints
        if not _authenticates(config, endpoint) and not is_loopback(endpoint.host)
    ]
    if found and config.get(KEY):
        raise ConfigError(f"{KEY}=true: {found[0]}", key=KEY, value="true")
    return found


def is_loopback(host: str) -> bool:
    """True if only this host reaches what listens there."""
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
