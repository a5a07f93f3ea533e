"""Configuration keys: type, default, limits and documentation; parses texts into values.

The rules and error messages are those of Apache Kafka's ``ConfigDef``, because its tools show them to people. Values
are ``bool``, ``int``, ``float``, ``str``, ``tuple[str, ...]`` or None ("not set").
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from oncelog.base.units import INT16_MAX, INT32_MAX, INT64_MAX

Value = bool | int | float | str | tuple[str, ...] | None


class ConfigType(Enum):
    """Value types, with the codes of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Update(Enum):
    """How a broker key can change while the broker runs."""

    READ_ONLY = "read-only"
    CLUSTER_WIDE = "cluster-wide"
    PER_BROKER = "per-broker"


class ConfigError(Exception):
    """A configuration was rejected. ``str()`` is the message for an operator or a client."""

    def __init__(self, message: str, *, key: str | None = None, value: object = None) -> None:
        self.key = key
        self.value = value
        super().__init__(message)

    @classmethod
    def of_value(cls, key: str, value: object, reason: str) -> ConfigError:
        return cls(f"Invalid value {shown(value)} for configuration {key}: {reason}", key=key, value=value)


Check = Callable[[str, Value], None]
"""A limit on a parsed value: raises ConfigError that names the given key."""


class ConfigKey(NamedTuple):
    """``default`` is the text of the default, or None."""

    name: str
    type: ConfigType
    default: str | None
    check: Check | None = None
    update: Update = Update.READ_ONLY
    synonym: str | None = None
    """Topic and group keys: the broker key with their default. Broker keys: the next key to look up."""
    internal: bool = False
    """Works, but DescribeConfigs lists it only if it is set."""
    hidden: bool = False
    """Works, but DescribeConfigs shows only its name: Apache Kafka's own parser does not have it."""
    may_repeat: bool = False
    """True for a list that keeps repeated elements; other lists drop them (KIP-1161)."""
    replaced_by: str | None = None
    """The new name of a deprecated key, which works until 0.2 with a warning."""
    documentation: str = ""
    """For our own keys; ``keys.documentation_of`` covers Apache Kafka's."""

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Value:
        """Raises ConfigError with the key, the value and the reason."""
        value = _PARSERS[self.type](self.name, text)
        if isinstance(value, tuple) and not self.may_repeat:
            value = _distinct(self.name, value)
        if self.check is not None:
            self.check(self.name, value)
        return value

    def default_value(self) -> Value:
        return None if self.default is None else self.parse(self.default)

    def documented(self, documentation: str) -> ConfigKey:
        return self._replace(documentation=documentation)


def canonical(value: Value) -> str | None:
    """A value as DescribeConfigs prints it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _java_double(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def shown(value: object) -> str:
    """A value as Java's ``toString`` prints it in a message."""
    if isinstance(value, tuple):
        return "[" + ", ".join(str(element) for element in value) + "]"
    if isinstance(value, float):
        return _java_double(value)
    if value is None:
        return "null"
    return str(value)


def _java_double(value: float) -> str:
    """A double as Java's ``Double.toString`` prints it: with an exponent below a thousandth and from ten million up."""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    from decimal import Decimal  # rarely needed; a start must not wait for the import

    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}.{''.join(rest) or '0'}E{int(exponent) + len(rest)}"


def _parse_boolean(key: str, text: str) -> Value:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ConfigError.of_value(key, text, "Expected value to be either true or false")
    return word == "true"


def _integer_parser(type_name: str, limit: int) -> Callable[[str, str], Value]:
    digits = re.compile(r"[+-]?[0-9]{1,19}")

    def parse(key: str, text: str) -> Value:
        trimmed = text.strip()
        if digits.fullmatch(trimmed) and -limit - 1 <= int(trimmed) <= limit:
            return int(trimmed)
        raise ConfigError.of_value(key, text, f"Not a number of type {type_name}")

    return parse


def _parse_double(key: str, text: str) -> Value:
    try:
        # Python accepts underscores in numbers, Java does not.
        value = float(text.strip().replace("_", "?"))
    except ValueError:
        raise ConfigError.of_value(key, text, "Not a number of type DOUBLE") from None
    if math.isnan(value):
        raise ConfigError.of_value(key, text, "Not a number of type DOUBLE")
    return value


def _parse_text(key: str, text: str) -> Value:
    return text.strip()


def _parse_list(key: str, text: str) -> Value:
    trimmed = text.strip()
    return tuple(part.strip() for part in trimmed.split(",")) if trimmed else ()


def _distinct(key: str, elements: tuple[str, ...]) -> tuple[str, ...]:
    """A list without repeated elements. Raises ConfigError for an empty element (KIP-1161)."""
    if "" in elements:
        raise ConfigError(f"Configuration '{key}' values must not be empty.", key=key, value=elements)
    return tuple(dict.fromkeys(elements))


_PARSERS: Final[dict[ConfigType, Callable[[str, str], Value]]] = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: _parse_text,
    ConfigType.INT: _integer_parser("INT", INT32_MAX),
    ConfigType.SHORT: _integer_parser("SHORT", INT16_MAX),
    ConfigType.LONG: _integer_parser("LONG", INT64_MAX),
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: _parse_list,
    ConfigType.CLASS: _parse_text,
    ConfigType.PASSWORD: _parse_text,
}
