"""Configuration of test brokers as programs write it: numbers and truth values as well as text."""

from __future__ import annotations

from collections.abc import Mapping

Config = Mapping[str, str | int | float | bool]


def texts(config: Config | None) -> dict[str, str]:
    """The values as a file of properties has them. Raises TypeError for one that has no text there."""
    return {key: _text(key, value) for key, value in (config or {}).items()}


def _text(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError(f"{key}: give text, a number, True or False, not {type(value).__name__}")
