"""Keys of client metrics subscriptions (KIP-714), as Apache Kafka 4.3 has them.

No client pushes metrics here: what is set is checked, kept and described.
"""

from __future__ import annotations

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
_BEYOND_RE2: Final = ("", "invalid perl operator", "invalid escape sequence", r"invalid character class range: \p")
"""RE2's complaints about what Java's expressions have: look-around, back-references, more classes; empty: too large."""


def check_client_matches(matches: Value) -> None:
    """Raise ConfigError unless all elements are a client's label, an equals sign and a regular expression."""
    for match in matches if isinstance(matches, tuple) else ():
        label, *patterns = match.rstrip("=").split("=")
        if label.strip() not in _LABELS or len(patterns) != 1 or not _is_pattern(patterns[0].strip()):
            raise ConfigError(f"Illegal client matching pattern: {match}", key=CLIENT_MATCH, value=match)


def _is_pattern(text: str) -> bool:
    """False for what is certainly no expression of Java. No text is ever matched against it."""
    from oncelog.records.patterns import Pattern, PatternRefused  # most brokers never get such a key

    try:
        Pattern(text)
    except PatternRefused as refusal:
        kind, _, rest = refusal.complaint.partition(": ")
        if kind == "bad repetition operator":
            return rest.endswith("+")  # possessive
        if kind == "invalid repetition size":
            least, _, most = rest.strip("{}").partition(",")
            return not most or int(least) <= int(most)
        return kind in _BEYOND_RE2 or refusal.complaint.startswith(_BEYOND_RE2[-1])
    return True
