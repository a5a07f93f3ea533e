"""Configuration of test brokers as Python values: numbers and booleans as well as text."""

from __future__ import annotations

from collections.abc import Mapping

Config = Mapping[str, str | int | float | bool]


def texts(config: Config | None) -> dict[str, str]:
    """The values as in a properties file. Raises TypeError for other types."""
    return {key: _text(key, value) for key, value in (config or {}).items()}


def _text(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError(f"{key}: expected text, a number, True or False, got {type(value).__name__}")
