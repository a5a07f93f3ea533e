"""Limits on configuration values; each function is a ``Check`` or returns one.

Regular expressions are compiled on first use, because compiling takes longer than importing the rest of the module.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.core.configs.kinds import Check, ConfigError, Value

if TYPE_CHECKING:
    from decimal import Decimal


def at_least(low: int) -> Check:
    return between(low, None)


def between(low: int, high: int | float | None) -> Check:
    """A number from ``low`` to ``high``, inclusive; None: no upper limit."""

    def check(key: str, value: Value) -> None:
        if value is None:
            raise ConfigError.of_value(key, value, "Value must be non-null")
        if isinstance(value, (int, float)) and value < low:
            raise ConfigError.of_value(key, value, f"Value must be at least {low}")
        if high is not None and isinstance(value, (int, float)) and value > high:
            raise ConfigError.of_value(key, value, f"Value must be no more than {high}")

    return check


def one_of(*words: str) -> Check:
    def check(key: str, value: Value) -> None:
        if value not in words:
            raise ConfigError.of_value(key, value, "String must be one of: " + ", ".join(words))

    return check


def one_of_any_case(*words: str) -> Check:
    upper = {word.upper() for word in words}

    def check(key: str, value: Value) -> None:
        if not isinstance(value, str) or value.upper() not in upper:
            raise ConfigError.of_value(
                key, value, "String must be one of (case insensitive): " + ", ".join(sorted(upper))
            )

    return check


def words_of(*words: str) -> Check:
    """A possibly empty list of these words."""
    check_word = one_of(*words)

    def check(key: str, value: Value) -> None:
        for word in value if isinstance(value, tuple) else ():
            check_word(key, word)

    return check


def non_empty_list(*words: str) -> Check:
    """A non-empty list (or not set) of these words, or of any."""
    valid = f"[{', '.join(words)}]" if words else "any non-empty value"
    check_words = words_of(*words)

    def check(key: str, value: Value) -> None:
        if value == ():
            raise ConfigError(
                f"Configuration '{key}' must not be empty. Valid values include: {valid}", key=key, value=value
            )
        if words:
            check_words(key, value)

    return check


def non_empty(key: str, value: Value) -> None:
    if value == "":
        raise ConfigError.of_value(key, value, "String must be non-empty")


def gzip_level(key: str, value: Value) -> None:
    """A gzip level: 1 to 9, or -1 for the codec's default."""
    if isinstance(value, int) and value != -1 and not 1 <= value <= 9:
        raise ConfigError.of_value(key, value, "Value must be between 1 and 9 or equal to -1")


_PART: Final = r"([-+]?[0-9]{1,40})"
_DURATION: Final = (
    rf"([-+]?)P(?:{_PART}D)?(T(?:{_PART}H)?(?:{_PART}M)?(?:([-+]?[0-9]{{1,40}}(?:[.,][0-9]{{0,9}})?)S)?)?"
)
_SECONDS: Final = (86_400, 3_600, 60)


def _duration_seconds(text: str) -> Decimal | None:
    """Parse an ISO 8601 duration like Java's ``Duration.parse``; None if that would reject it."""
    from decimal import Decimal  # rarely needed; a start must not wait for the import

    match = re.fullmatch(_DURATION, text, re.IGNORECASE | re.ASCII)
    if match is None or match[3] in ("T", "t") or not any(match.group(2, 4, 5, 6)):
        return None
    whole = sum(int(part or 0) * seconds for part, seconds in zip(match.group(2, 4, 5), _SECONDS, strict=True))
    duration = whole + Decimal((match[6] or "0").replace(",", "."))
    if not -(1 << 63) <= math.floor(duration) < 1 << 63:
        return None
    return -duration if match[1] == "-" else duration


def offset_reset(key: str, value: Value) -> None:
    """``earliest``, ``latest``, or ``by_duration:`` and a non-negative ISO 8601 duration."""
    if value in ("earliest", "latest"):
        return
    word, _, text = str(value).partition(":")
    duration = _duration_seconds(text) if word == "by_duration" else None
    if duration is None or duration < 0:
        reason = (
            f"Invalid value `{value}` for configuration {key}. The value must be either 'earliest', 'latest' or of the "
            "format 'by_duration:<PnDTnHnMn.nS>'."
        )
        raise ConfigError.of_value(key, value, reason)


class OffsetReset(NamedTuple):
    """The start of a reader without a position: "earliest", "latest", or "by_duration", so long ago."""

    strategy: str
    duration_ms: int = 0


def read_offset_reset(text: str) -> OffsetReset:
    """A value that :func:`offset_reset` accepts."""
    word, _, duration = text.partition(":")
    seconds = _duration_seconds(duration) if duration else None
    return OffsetReset(word, 0 if seconds is None else int(seconds * 1000))


_HOST_AND_LIMIT: Final = r"[^,\s]+:[0-9]{1,10}"


def limits_by_host(key: str, value: Value) -> None:
    """Comma-separated pairs of host:number."""
    for pair in filter(None, (part.strip() for part in str(value or "").split(","))):
        if not re.fullmatch(_HOST_AND_LIMIT, pair):
            raise ConfigError.of_value(key, value, f"expected host:limit but got {pair}")


_HOST_NAME: Final = r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?"


def host_names(key: str, value: Value) -> None:
    for name in value if isinstance(value, tuple) else ():
        if not re.fullmatch(_HOST_NAME, name):
            raise ConfigError.of_value(key, value, f"expected a host name without scheme and port but got {name}")


_THROTTLED: Final = r"[0-9]+:[0-9]+"


def throttled_replicas(key: str, value: Value) -> None:
    """``*``, or a list of partition:broker."""
    replicas: Collection[str] = value if isinstance(value, tuple) else ()
    if tuple(replicas) == ("*",) or all(re.fullmatch(_THROTTLED, replica) for replica in replicas):
        return
    reason = (
        f"{key} must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )
    raise ConfigError.of_value(key, value, reason)


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
"""RE2's complaints about Java-only features: look-around, back-references, more classes; empty: too large."""


def client_matches(key: str, value: Value) -> None:
    """A list of elements of the form client label, equals sign, regular expression."""
    for match in value if isinstance(value, tuple) else ():
        label, *patterns = match.rstrip("=").split("=")
        if label.strip() not in _LABELS or len(patterns) != 1 or not _is_pattern(patterns[0].strip()):
            raise ConfigError(f"Illegal client matching pattern: {match}", key=key, value=match)


def _is_pattern(text: str) -> bool:
    """False for a text that is certainly not a Java regular expression; it is never matched."""
    from oncelog.records.patterns import Pattern, PatternRefused  # most brokers never have such a key

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
