"""Configuration providers: resolves ``${provider:path:key}`` in a configuration at start (KIP-297, KIP-421).

``config.providers`` lists the providers, ``config.providers.NAME.class`` sets the kind of each, and
``config.providers.NAME.param.…`` restricts what it may read. An unresolvable reference is an error: Apache Kafka keeps
its text, which would become a known password. Errors never contain a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from oncelog.core.configs.keys import broker_key
from oncelog.core.configs.kinds import ConfigError

PROVIDERS: Final = "config.providers"
_REFERENCE: Final = re.compile(r"\$\{([^}:]*):(?:([^}]*):)?([^}]*)\}")


class Kind(Enum):
    """Apache Kafka's providers, by class name."""

    FILE = "FileConfigProvider"
    DIRECTORY = "DirectoryConfigProvider"
    ENVIRONMENT = "EnvVarConfigProvider"


class Provider(NamedTuple):
    name: str
    kind: Kind
    parameters: Mapping[str, str] = MappingProxyType({})


Lookup = Callable[[Provider, str, str], str]
"""(provider, path, key) → value. Raises ConfigError without quoting what it read."""


def resolve(values: Mapping[str, str], lookup: Lookup) -> dict[str, str]:
    """Resolve all references and remove the providers' keys. Raises ConfigError."""
    providers = _providers(values)

    def resolved(name: str, text: str) -> str:
        def value_of(reference: re.Match[str]) -> str:
            provider = providers.get(reference[1].strip())
            if provider is not None:
                return lookup(provider, (reference[2] or "").strip(), reference[3].strip())
            key = broker_key(name)
            if key is not None and key.sensitive:
                raise ConfigError(f"{name} refers to ${{{reference[1]}:…}}, which is not listed in {PROVIDERS}")
            # Apache Kafka keeps unknown references in other keys as text.
            return reference[0]

        try:
            return _REFERENCE.sub(value_of, text)
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}", key=name) from None

    return {name: resolved(name, text) for name, text in values.items() if not name.startswith(f"{PROVIDERS}.")}


def _providers(values: Mapping[str, str]) -> dict[str, Provider]:
    providers = {}
    for name in filter(None, (part.strip() for part in values.get(PROVIDERS, "").split(","))):
        prefix = f"{PROVIDERS}.{name}."
        written = values.get(f"{prefix}class", "").strip()
        kind = next((kind_ for kind_ in Kind if kind_.value == written.rpartition(".")[2]), None)
        if kind is None:
            names = ", ".join(f"org.apache.kafka.common.config.provider.{kind_.value}" for kind_ in Kind)
            raise ConfigError(f"{prefix}class: {written or 'not set'}; known here are {names}", key=f"{prefix}class")
        parameters = {
            key.removeprefix(f"{prefix}param."): text
            for key, text in values.items()
            if key.startswith(f"{prefix}param.")
        }
        providers[name] = Provider(name, kind, parameters)
    return providers
