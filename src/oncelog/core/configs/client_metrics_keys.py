"""Keys of client metrics subscriptions (KIP-714), as Apache Kafka 4.3 has them.

No client pushes metrics here: what is set is checked, kept and described.
"""

from __future__ import annotations

import re
from typing import Final

from oncelog.core.configs.kinds import ConfigError, ConfigKey, ConfigType, Value

PUSH_INTERVAL: Final = "interval.ms"
CLIENT_MATCH: Final = "match"
CLIENT_METRICS_KEYS: Final = {
    key.name: key
    for key in (
        ConfigKey(PUSH_INTERVAL, ConfigType.INT, "300000", inert=True),
        ConfigKey(CLIENT_MATCH, ConfigType.LIST, "", inert=True),
        ConfigKey("metrics", ConfigType.LIST, "", inert=True),
    )
}

_LABELS: Final = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
_COMPILED_MAX: Final = 1_000
"""Characters of a pattern up to which it is compiled to see whether it can be: nothing is matched against it."""


def check_client_matches(matches: Value) -> None:
    """Raise ConfigError unless all elements are a client's label, an equals sign and a regular expression."""
    for match in matches if isinstance(matches, tuple) else ():
        label, *patterns = match.rstrip("=").split("=")
        if label.strip() not in _LABELS or len(patterns) != 1 or not _is_pattern(patterns[0].strip()):
            raise ConfigError(f"Illegal client matching pattern: {match}", key=CLIENT_MATCH, value=match)


def _is_pattern(text: str) -> bool:
    if len(text) > _COMPILED_MAX:
        return True
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return True
