"""The settings a broker starts with, from Kafka's configuration keys: parsed and checked, nothing opened yet."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from oncelog.base.security import PLAINTEXT_LISTENER, Endpoint, SecurityProtocol
from oncelog.core.configs.broker import BrokerConfig, parse_broker_config
from oncelog.core.configs.combinations import check_combinations
from oncelog.core.configs.kinds import ConfigError
from oncelog.core.configs.listeners import Listeners, read_listeners
from oncelog.core.configs.providers import Kind as Kind
from oncelog.core.configs.providers import Provider as Provider
from oncelog.core.configs.providers import resolve as resolve
from oncelog.node.listeners.exposure import exposures

__all__ = [
    "Address",
    "BrokerConfig",
    "ConfigError",
    "Listeners",
    "Settings",
    "parse_address",
    "parse_properties",
    "read_settings",
]

Address = tuple[str, int]
"""Host and port."""

DEFAULT_DATA_DIRECTORY: Final = "oncelog-data"
_KEY: Final = re.compile(r"((?:\\.|[^\\=:\s])+)\s*[=:]?\s*")
_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_CONTROL: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}
DEFAULT_LISTEN: Final[Address] = ("127.0.0.1", 9092)


class Settings(NamedTuple):
    """Configuration and what follows from it."""

    config: BrokerConfig
    data_directory: str
    listeners: Listeners
    warnings: Sequence[str] = ()
    """Sentences for the operator about the configuration."""

    @property
    def listen(self) -> Address:
        """The address of the first listener; port 0 takes a free one."""
        first = self.listeners.endpoints[0]
        return first.host, first.port


def read_settings(
    values: Mapping[str, str], *, data_directory: str | None = None, listen: Address | None = None
) -> Settings:
    """Settings from configuration keys; the arguments win over them: ``listen`` is one PLAINTEXT listener, and is
    what ``listeners`` is described as. Raises ConfigError."""
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
    """Refuse now what could not work when somebody logs in. Raises ConfigError."""
    names = [each.listener_name for each in listeners.endpoints if each.protocol.has_sasl]
    if names:
        from oncelog.core.sasl.settings import listener_sasl

        for name in names:
            listener_sasl(config, name)


def parse_address(text: str) -> Address:
    """``host:port``, ``:port`` or ``[v6]:port``. Raises ConfigError."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{text}: not an address, write HOST:PORT", key="listen", value=text)
    return host.removeprefix("[").removesuffix("]"), int(port)


def parse_properties(text: str) -> dict[str, str]:
    """Java's properties format as far as server.properties uses it: ``key=value``, comments, continued lines."""
    values: dict[str, str] = {}
    begun = ""
    for line in text.splitlines():
        stripped = line.strip()
        if not begun and (not stripped or stripped[0] in "#!"):
            continue  # a comment is not continued
        logical, begun = begun + stripped, ""
        if (len(logical) - len(logical.rstrip("\\"))) % 2:
            begun = logical[:-1]
            continue
        _note(logical, values)
    if begun:
        _note(begun, values)
    return values


def _note(logical: str, values: dict[str, str]) -> None:
    """The key ends with the first ``=``, ``:`` or blank; a backslash takes the meaning of what follows it."""
    found = _KEY.match(logical)
    if found is not None:
        values[_ESCAPED.sub(_meant, found[1])] = _ESCAPED.sub(_meant, logical[found.end() :])


def _meant(escape: re.Match[str]) -> str:
    """A line end (a key in PEM has some), a letter by its number, or what the backslash stands before."""
    text = escape[1]
    return chr(int(text[1:], 16)) if len(text) > 1 else _CONTROL.get(text, text)
