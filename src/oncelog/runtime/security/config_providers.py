"""Resolves references in a configuration: to properties files, files in directories, and environment variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from oncelog.base.notation.java_properties import PropertiesError, parse_properties
from oncelog.node.listeners.broker_settings import ConfigError, Kind, Provider, resolve

MAX_BYTES: Final = 1 << 20
_ALLOWED_PATHS: Final = "allowed.paths"
_ALLOWED_NAMES: Final = "allowlist.pattern"


def resolve_references(values: Mapping[str, str]) -> dict[str, str]:
    """Replaces every ``${provider:path:key}``. Raises ConfigError, which contains no value."""
    return resolve(values, look_up)


def look_up(provider: Provider, path: str, key: str) -> str:
    """A referenced value. Raises ConfigError."""
    if provider.kind is Kind.ENVIRONMENT:
        return _variable(provider, key)
    if not path or not key:
        raise ConfigError(
            f"${{{provider.name}:{path}:{key}}} lacks a path or a key: write ${{{provider.name}:PATH:KEY}}"
        )
    if provider.kind is Kind.DIRECTORY:
        if key in (".", "..") or "/" in key:
            raise ConfigError(f"{key} is not the name of a file in {path}")
        return _read(provider, f"{path}/{key}")
    try:
        value = parse_properties(_read(provider, path)).get(key)
    except PropertiesError as error:
        raise ConfigError(f"{path}: {error}") from None
    if value is None:
        raise ConfigError(f"{path} has no {key}, to which ${{{provider.name}:{path}:{key}}} refers")
    return value


def _variable(provider: Provider, name: str) -> str:
    pattern = provider.parameters.get(_ALLOWED_NAMES, ".*")
    try:
        allowed = re.fullmatch(pattern, name) is not None
    except re.error:
        raise ConfigError(
            f"config.providers.{provider.name}.param.{_ALLOWED_NAMES} is not a regular expression"
        ) from None
    if not allowed:
        raise ConfigError(f"config.providers.{provider.name}.param.{_ALLOWED_NAMES} does not allow {name}")
    value = os.environ.get(name)
    if value is None:
        raise ConfigError(f"the environment variable {name} is not set, and ${{{provider.name}:{name}}} refers to it")
    return value


def _read(provider: Provider, path: str) -> str:
    normal = os.path.normpath(path)
    allowed = provider.parameters.get(_ALLOWED_PATHS, "")
    roots = [os.path.normpath(root.strip()) for root in allowed.split(",") if root.strip()]
    if roots and not any(Path(normal).is_relative_to(root) for root in roots):
        raise ConfigError(f"config.providers.{provider.name}.param.{_ALLOWED_PATHS} does not allow {path}")
    try:
        with Path(normal).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        text = data.decode()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8") from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path} is larger than the maximum of {MAX_BYTES} bytes")
    return text
