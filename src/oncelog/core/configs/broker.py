"""The broker's configuration: values of its file and command line, and dynamic changes.

Look-ups follow Apache Kafka's order: dynamic for this broker, dynamic for all brokers, file, default; then the next
synonym (``log.retention.ms`` → ``.minutes`` → ``.hours``).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from oncelog.base.suggestions import did_you_mean
from oncelog.base.units import HOUR_MS, MINUTE_MS
from oncelog.core.configs.keys import BROKER_KEYS, broker_key, has_no_effect, listener_prefix, synonym_names
from oncelog.core.configs.kinds import ConfigError, Value, canonical

_DEFAULTS: Final[dict[str, Value]] = {}


class Source(Enum):
    """The source of a value, with the codes of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    """A source of a value, with its name and value there."""

    name: str
    value: str | None
    source: Source


class BrokerConfig:
    """Typed access to the broker's values; immutable."""

    def __init__(
        self,
        static: Mapping[str, str] | None = None,
        dynamic_default: Mapping[str, str] | None = None,
        dynamic: Mapping[str, str] | None = None,
    ) -> None:
        """Texts by key. Unknown keys are ignored; an invalid value raises ConfigError. ``combinations`` checks values
        against each other.
        """
        self.static = _with_both_ids(dict(static or {}))
        self.dynamic_default = dict(dynamic_default or {})
        self.dynamic = dict(dynamic or {})
        self._values: dict[str, Value] = dict(_defaults())
        # Later layers override earlier ones.
        for layer in (self.static, self.dynamic_default, self.dynamic):
            for name, text in layer.items():
                key = broker_key(name)
                if key is not None:
                    self._values[name] = key.parse(text)
                    if key.replaced_by is not None and key.replaced_by not in layer:
                        self._values[key.replaced_by] = self._values[name]
        directories = self._values["log.dirs"] or self._values["log.dir"]
        if isinstance(directories, tuple) and len(directories) != 1:
            raise ConfigError.of_value("log.dirs", ",".join(directories), "One data directory is supported")

    def with_dynamic(self, dynamic_default: Mapping[str, str], dynamic: Mapping[str, str]) -> BrokerConfig:
        return BrokerConfig(self.static, dynamic_default, dynamic)

    def get(self, name: str) -> Any:
        """The typed value of a key. Raises KeyError for an unknown key, which is our bug."""
        return self._values[name]

    def value_or(self, name: str, other: str) -> Any:
        return self._values[name] if name in self._values else self._values[other]

    def of_listener(self, listener_name: str, name: str, mechanism: str | None = None) -> Any:
        """The value of a key for a listener: its own (or its SASL mechanism's), or else the plain one."""
        prefix = listener_prefix(listener_name)
        if mechanism is not None and f"{prefix}{mechanism.lower()}.{name}" in self._values:
            return self._values[f"{prefix}{mechanism.lower()}.{name}"]
        return self.value_or(prefix + name, name)

    def is_set_for(self, listener_name: str, name: str) -> bool:
        return self.is_set(listener_prefix(listener_name) + name)

    def is_set(self, name: str) -> bool:
        """True if any source sets the key, so that its default does not apply."""
        return name in self.static or name in self.dynamic_default or name in self.dynamic

    def without_secrets(self) -> dict[str, str]:
        return {name: text for name, text in self.static.items() if _may_be_shown(name)}

    def synonyms(self, name: str) -> list[Synonym]:
        """The sources of a value, the effective one first; empty without a value. Values of sensitive, hidden and
        unknown keys are None."""
        names = synonym_names(name)
        sources = [
            # An unknown key may be sensitive too.
            Synonym(key_name, layer[key_name] if _is_described(key_name) else None, source)
            for layer, source in (
                (self.dynamic, Source.DYNAMIC_BROKER),
                (self.dynamic_default, Source.DYNAMIC_DEFAULT_BROKER),
                (self.static, Source.STATIC_BROKER),
                (_default_texts(), Source.DEFAULT),
            )
            for key_name in names
            if key_name in layer
        ]
        first = next((i for i, synonym in enumerate(sources) if synonym.name == name), len(sources))
        return sources[first:]

    @property
    def node_id(self) -> int:
        return int(self.get("node.id"))

    @property
    def data_directory(self) -> str:
        directories = self.get("log.dirs") or self.get("log.dir")
        return str(directories[0])

    @property
    def log_retention_ms(self) -> int:
        """Retention in milliseconds, from the most precise key that is set; −1: unlimited."""
        for name, unit_ms in (("log.retention.ms", 1), ("log.retention.minutes", MINUTE_MS)):
            value = self.get(name)
            if value is not None:
                return int(value) * unit_ms if value >= 0 else -1
        hours = self.get("log.retention.hours")
        return int(hours) * HOUR_MS if hours >= 0 else -1

    @property
    def log_roll_ms(self) -> int:
        value = self.get("log.roll.ms")
        return int(value) if value is not None else int(self.get("log.roll.hours")) * HOUR_MS

    @property
    def log_roll_jitter_ms(self) -> int:
        """The maximum random reduction of that age, in milliseconds."""
        value = self.get("log.roll.jitter.ms")
        return int(value) if value is not None else int(self.get("log.roll.jitter.hours")) * HOUR_MS

    @property
    def log_flush_interval_ms(self) -> int:
        value = self.get("log.flush.interval.ms")
        return int(value) if value is not None else int(self.get("log.flush.scheduler.interval.ms"))

    @property
    def offsets_retention_ms(self) -> int:
        return int(self.get("offsets.retention.minutes")) * MINUTE_MS


def parse_broker_config(settings: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
    """The static configuration, and warnings about keys without effect. Raises ConfigError."""
    warnings = []
    for name in settings:
        key = broker_key(name)
        if key is None:
            warnings.append(f"ignoring unknown configuration key {name}{did_you_mean(name, BROKER_KEYS)}")
        elif has_no_effect(key.name):
            warnings.append(f"{name} has no effect here")
        elif key.replaced_by is not None:
            warnings.append(f"{name} is deprecated and will be removed in 0.2; use {key.replaced_by}")
    return BrokerConfig(settings), warnings


def _may_be_shown(name: str) -> bool:
    key = broker_key(name)
    return key is not None and not key.sensitive


def _is_described(name: str) -> bool:
    key = broker_key(name)
    return key is not None and not key.sensitive and not key.hidden


def _with_both_ids(static: dict[str, str]) -> dict[str, str]:
    """Set both ``node.id`` and ``broker.id`` if either is given."""
    old, new = static.get("broker.id"), static.get("node.id")
    # -1 is broker.id's default: not set.
    if old is None or old.strip() == "-1":
        return static if new is None else {**static, "broker.id": new}
    if new is not None and new.strip() != old.strip():
        raise ConfigError.of_value("broker.id", old, f"Value must equal node.id ({new})")
    return {**static, "node.id": old}


def _defaults() -> Mapping[str, Value]:
    if not _DEFAULTS:
        _DEFAULTS.update({name: key.default_value() for name, key in BROKER_KEYS.items()})
    return _DEFAULTS


def _default_texts() -> Mapping[str, str]:
    if not _DEFAULT_TEXTS:
        for name, key in BROKER_KEYS.items():
            text = canonical(key.default_value())
            if text is not None and not key.hidden:
                _DEFAULT_TEXTS[name] = text
    return _DEFAULT_TEXTS


_DEFAULT_TEXTS: Final[dict[str, str]] = {}
