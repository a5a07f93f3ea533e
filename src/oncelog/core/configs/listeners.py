"""The broker's listeners, parsed from ``listeners``, ``advertised.listeners``, ``listener.security.protocol.map`` and
the two keys that select the inter-broker listener.

Rules and messages are Apache Kafka's. Listeners named in ``controller.listener.names`` are left out: configuration
files written for Apache Kafka have them, but oncelog has no separate controllers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple

from oncelog.base.security import Endpoint, SecurityProtocol
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.kinds import ConfigError

_ENTRY: Final = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
_HIGHEST_PORT: Final = 65535
_MAP: Final = "listener.security.protocol.map"
_ADVERTISED: Final = "advertised.listeners"
_BY_NAME: Final = "inter.broker.listener.name"
_BY_PROTOCOL: Final = "security.inter.broker.protocol"


class Listeners(NamedTuple):
    endpoints: tuple[Endpoint, ...]
    """The addresses to listen on; port 0 selects a free one."""
    advertised: Mapping[str, Endpoint]
    """The advertised addresses by listener name, for all ``endpoints`` or some. An empty host or port 0 means the
    socket's.
    """
    inter_broker: str
    """The name of the listener for connections between brokers."""

    def registered(self, bound: Mapping[str, tuple[str, int]]) -> tuple[Endpoint, ...]:
        """The endpoints to register, given each listener's bound address."""
        endpoints = []
        for name, advertised in self.advertised.items():
            host, port = bound[name]
            endpoints.append(Endpoint(name, advertised.protocol, advertised.host or host, advertised.port or port))
        return tuple(endpoints)


def read_listeners(config: BrokerConfig) -> Listeners:
    """Raises ConfigError if a key is invalid, or if keys contradict each other."""
    listeners: Sequence[str] = config.get("listeners")
    protocols = _protocols(config)
    names_of_controllers = set(config.get("controller.listener.names") or ())
    endpoints = _without(names_of_controllers, _endpoints("listeners", listeners, protocols, names_of_controllers))
    _check_distinct(endpoints, ",".join(listeners))
    # Without advertised.listeners the bound addresses are advertised, which are unknown before binding.
    advertised = tuple(endpoint._replace(host="", port=0) for endpoint in endpoints)
    told = config.get(_ADVERTISED)
    if told:
        advertised = _without(names_of_controllers, _endpoints(_ADVERTISED, told, protocols, names_of_controllers))
        _check_names(advertised, ",".join(told))
        _check_reachable(advertised)
    if not advertised:
        raise ConfigError("There must be at least one broker advertised listener.", key=_ADVERTISED)
    inter_broker, _ = inter_broker_listener(config)
    _check_advertised(advertised, {endpoint.listener_name for endpoint in endpoints}, inter_broker)
    return Listeners(endpoints, {endpoint.listener_name: endpoint for endpoint in advertised}, inter_broker)


def inter_broker_listener(config: BrokerConfig) -> tuple[str, SecurityProtocol]:
    """Raises ConfigError."""
    name = config.get(_BY_NAME)
    if name is None:
        protocol = SecurityProtocol(config.get(_BY_PROTOCOL))
        return protocol.value, protocol
    if config.is_set(_BY_PROTOCOL):
        raise ConfigError(f"Only one of {_BY_NAME} and {_BY_PROTOCOL} should be set.", key=_BY_NAME, value=name)
    normal = _normalised(name)
    named_protocol = _protocols(config).get(normal)
    if named_protocol is None:
        raise ConfigError(
            f"Listener with name {normal} defined in {_BY_NAME} not found in {_MAP}.", key=_BY_NAME, value=name
        )
    return normal, named_protocol


def _normalised(name: str) -> str:
    if not name.strip():
        raise ConfigError("The provided listener name is null or empty string", key="listeners", value=name)
    return name.upper()


def _protocols(config: BrokerConfig) -> dict[str, SecurityProtocol]:
    text = config.get(_MAP)
    protocols = {}
    for pair in filter(None, re.split(r"\s*,\s*", text)):
        name, separator, word = pair.rpartition(":")
        if not separator:
            raise ConfigError(
                f"Error parsing configuration property '{_MAP}': {pair} has no colon", key=_MAP, value=text
            )
        try:
            protocols[_normalised(name.strip())] = SecurityProtocol(word.strip().upper())
        except ValueError:
            sentence = f"Invalid security protocol `{word.strip()}` defined in {_MAP}"
            raise ConfigError(sentence, key=_MAP, value=text) from None
    return protocols


def _endpoints(
    key: str, entries: Sequence[str], protocols: Mapping[str, SecurityProtocol], unchecked: Iterable[str]
) -> list[Endpoint]:
    """Names in ``unchecked`` need no protocol."""
    protocol_of = {**dict.fromkeys(unchecked, SecurityProtocol.PLAINTEXT), **protocols}
    endpoints = []
    text = ",".join(entries)

    def refuse(reason: str) -> ConfigError:
        return ConfigError(
            f"Error creating broker listeners from '[{', '.join(entries)}]': {reason}", key=key, value=text
        )

    for entry in filter(None, entries):
        parsed = _ENTRY.fullmatch(entry)
        if parsed is None:
            raise refuse(f"Unable to parse {entry} to a broker endpoint")
        name, port = _normalised(parsed[1]), int(parsed[3][:12])
        if name not in protocol_of:
            raise refuse(f"No security protocol defined for listener {name}")
        if not 0 <= port <= _HIGHEST_PORT:
            raise refuse(f"{port} is not a port; use one from 0 to {_HIGHEST_PORT}")
        endpoints.append(Endpoint(name, protocol_of[name], parsed[2], port))
    return endpoints


def _without(names: Iterable[str], endpoints: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    return tuple(endpoint for endpoint in endpoints if endpoint.listener_name not in names)


def _check_names(endpoints: Sequence[Endpoint], text: str) -> None:
    if len({endpoint.listener_name for endpoint in endpoints}) < len(endpoints):
        sentence = f"Each listener must have a different name, listeners: {text}"
        raise ConfigError(sentence, key="listeners", value=text)


def _check_reachable(advertised: Sequence[Endpoint]) -> None:
    for endpoint in advertised:
        if endpoint.host in ("0.0.0.0", "::"):
            raise ConfigError(
                f"{_ADVERTISED} cannot use the nonroutable meta-address {endpoint.host}. Use a routable IP address.",
                key=_ADVERTISED,
                value=str(endpoint),
            )


def _check_distinct(endpoints: Sequence[Endpoint], text: str) -> None:
    """Names must be distinct, and so must ports, except that an IPv4 and an IPv6 address may share a port."""
    _check_names(endpoints, text)
    by_port: dict[int, list[int | None]] = {}
    for endpoint in endpoints:
        if endpoint.port:
            by_port.setdefault(endpoint.port, []).append(_ip_version(endpoint.host))
    for port, versions in by_port.items():
        if len(versions) == 1 or sorted(version or 0 for version in versions) == [4, 6]:
            continue
        if versions.count(None) > 1:
            sentence = f"Each listener must have a different port, listeners: {text}"
        elif len(versions) - versions.count(None) == 2:
            sentence = (
                "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, "
                f"listeners: {text}, port: {port}"
            )
        else:
            sentence = (
                "Each listener must have a different port unless exactly one listener has an IPv4 address and the "
                f"other IPv6 address, listeners: {text}, port: {port}"
            )
        raise ConfigError(sentence, key="listeners", value=text)


def _ip_version(host: str) -> int | None:
    try:
        return ip_address(host).version
    except ValueError:
        return None


def _check_advertised(advertised: Sequence[Endpoint], names: set[str], inter_broker: str) -> None:
    advertised_names = [endpoint.listener_name for endpoint in advertised]
    if inter_broker not in advertised_names:
        raise ConfigError(
            f"{_BY_NAME} must be a listener name defined in {_ADVERTISED}. The valid options based on currently "
            f"configured listeners are {','.join(advertised_names)}",
            key=_BY_NAME,
            value=inter_broker,
        )
    if not names.issuperset(advertised_names):
        raise ConfigError(
            f"{_ADVERTISED} listener names must be equal to or a subset of the ones defined in listeners. Found "
            f"{','.join(advertised_names)}. The valid options based on the current configuration are "
            f"{','.join(sorted(names))}",
            key=_ADVERTISED,
            value=",".join(advertised_names),
        )
