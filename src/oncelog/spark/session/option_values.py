"""Parses the options of a source or sink: separates the client's, and reads numbers, booleans, durations, JSON.

Every error names the option and its value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from oncelog.base.units import DAY_MS, HOUR_MS, INT64_MAX, MINUTE_MS, SECOND_MS
from oncelog.client.config import ClientConfig
from oncelog.spark.session.errors import OptionError

T = TypeVar("T")

_DURATION: Final = re.compile(r"\s*(\d{1,18})\s*([a-z]*)\s*")
_UNITS_MS: Final = {
    **dict.fromkeys(("", "ms"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), SECOND_MS),
    **dict.fromkeys(("m", "min", "minute", "minutes"), MINUTE_MS),
    **dict.fromkeys(("h", "hour", "hours"), HOUR_MS),
    **dict.fromkeys(("d", "day", "days"), DAY_MS),
}


# A task and every planning or committing process opens its own client. One that starts while the only broker restarts
# waits for it, whereas a command in a terminal reports after two seconds that no broker answers.
_DEFAULT_CLIENT_SETTINGS: Final = {"bootstrap.timeout.ms": "10000"}


def client_config(settings: Mapping[str, str]) -> ClientConfig:
    """The client's settings under Apache Kafka's names, over Spark's defaults. Raises ConfigError."""
    return ClientConfig.from_properties({**_DEFAULT_CLIENT_SETTINGS, **settings})


class GivenOptions(NamedTuple):
    # Every option that is set or has a default, by its lower-case name.
    options: dict[str, str]
    # The client's settings: the options that begin with ``kafka.``, without the prefix.
    client: dict[str, str]
    bootstrap_servers: str


def given_options(
    given: Mapping[str, str], role: str, declared: Mapping[str, str | None], refused: Mapping[str, str]
) -> GivenOptions:
    """Split options. ``declared`` has the defaults; ``refused`` maps unsupported client keys to an alternative;
    ``role`` is ``consumer`` or ``producer``. Raises OptionError, also if no brokers are given."""
    options = {name.lower(): value for name, value in declared.items() if value is not None}
    options |= {name.lower(): str(value) for name, value in given.items()}
    client = {name[len("kafka.") :]: value for name, value in options.items() if name.startswith("kafka.")}
    for name, instead in refused.items():
        if name in client:
            raise OptionError(f"Kafka option '{name}' is not supported: {instead}")
    servers = client.get("bootstrap.servers")
    if not servers:
        raise OptionError(f"Option 'kafka.bootstrap.servers' must be specified for configuring Kafka {role}")
    return GivenOptions(options, client, servers)


def json_object(text: str, example: str, option: str) -> dict[str, Any]:
    """Parse a JSON object. Raises OptionError with an example."""
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise OptionError(f"Expected e.g. {example} for option '{option}', got {text}")
    return parsed


def integer(value: object, text: str, example: str) -> int:
    """Parse a whole number within ``text``. Raises OptionError."""
    try:
        return int(str(value))
    except ValueError:
        raise OptionError(f"Expected e.g. {example}, got {text}") from None


def optional(options: Mapping[str, str], name: str, parse: Callable[[str], T]) -> T | None:
    text = options.get(name.lower())
    return None if text is None else parse(text)


def positive(options: Mapping[str, str], name: str) -> int:
    """A whole number above zero. Raises OptionError."""
    value = optional_positive(options, name)
    assert value is not None
    return value


def optional_positive(options: Mapping[str, str], name: str) -> int | None:
    """A whole number above zero, or None if the option is not set. Raises OptionError."""
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdigit() or not 0 < int(text) <= INT64_MAX:
        raise OptionError(f"{name} must be positive, got {text!r}")
    return int(text)


def boolean(options: Mapping[str, str], name: str) -> bool:
    """``true`` or ``false`` in any case. Raises OptionError."""
    text = options[name.lower()]
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{name} must be 'true' or 'false', got {text!r}")
    return text.lower() == "true"


def duration_ms(options: Mapping[str, str], name: str) -> int:
    """A duration in Spark's notation (``500ms``, ``30s``, ``15m``, ``1h``, ``1d``, ``5min``; milliseconds by default).
    Raises OptionError."""
    text = options[name.lower()]
    match = _DURATION.fullmatch(text.lower())
    if match is None or match[2] not in _UNITS_MS:
        raise OptionError(f"{name} must be a duration such as 500ms, 30s, 15m or 1h, got {text!r}")
    return int(match[1]) * _UNITS_MS[match[2]]
