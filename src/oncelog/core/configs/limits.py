"""The limits that keys put on their values, each a function that makes a ``Check``.

Expressions are compiled by their first use: compiling them takes longer than importing the rest of the module.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from oncelog.core.configs.kinds import Check, ConfigError, Value

if TYPE_CHECKING:
    from decimal import Decimal


def at_least(low: int) -> Check:
    """A number not below ``low``."""
    return between(low, None)


def between(low: int, high: int | float | None) -> Check:
    """A number from ``low`` to ``high``, both allowed; ``high`` None: no upper limit."""

    def check(key: str, value: Value) -> None:
        if value is None:
            raise ConfigError.of_value(key, value, "Value must be non-null")
        if isinstance(value, (int, float)) and value < low:
            raise ConfigError.of_value(key, value, f"Value must be at least {low}")
        if high is not None and isinstance(value, (int, float)) and value > high:
            raise ConfigError.of_value(key, value, f"Value must be no more than {high}")

    return check


def one_of(*words: str) -> Check:
    """A text that is one of ``words``."""

    def check(key: str, value: Value) -> None:
        if value not in words:
            raise ConfigError.of_value(key, value, "String must be one of: " + ", ".join(words))

    return check


def one_of_any_case(*words: str) -> Check:
    """A text that is one of ``words``, in capitals or not."""
    upper = {word.upper() for word in words}

    def check(key: str, value: Value) -> None:
        if not isinstance(value, str) or value.upper() not in upper:
            raise ConfigError.of_value(
                key, value, "String must be one of (case insensitive): " + ", ".join(sorted(upper))
            )

    return check


def words_of(*words: str) -> Check:
    """A list in which every element is one of these words; it may be empty."""
    check_word = one_of(*words)

    def check(key: str, value: Value) -> None:
        for word in value if isinstance(value, tuple) else ():
            check_word(key, word)

    return check


def non_empty_list(*words: str) -> Check:
    """A list with an element at least (or not set), each one of these words, if there are any."""
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
    """A text that is not empty (or not set)."""
    if value == "":
        raise ConfigError.of_value(key, value, "String must be non-empty")


def gzip_level(key: str, value: Value) -> None:
    """A gzip level: 1 to 9, or -1 for the codec's own choice."""
    if isinstance(value, int) and value != -1 and not 1 <= value <= 9:
        raise ConfigError.of_value(key, value, "Value must be between 1 and 9 or equal to -1")


_PART: Final = r"([-+]?[0-9]{1,40})"
_DURATION: Final = (
    rf"([-+]?)P(?:{_PART}D)?(T(?:{_PART}H)?(?:{_PART}M)?(?:([-+]?[0-9]{{1,40}}(?:[.,][0-9]{{0,9}})?)S)?)?"
)
_SECONDS: Final = (86_400, 3_600, 60)


def _duration_seconds(text: str) -> Decimal | None:
    """An ISO 8601 duration as Java's ``Duration.parse`` reads it; None where it refuses."""
    from decimal import Decimal  # few values are written so: no start has to wait for it

    match = re.fullmatch(_DURATION, text, re.IGNORECASE | re.ASCII)
    if match is None or match[3] in ("T", "t") or not any(match.group(2, 4, 5, 6)):
        return None
    whole = sum(int(part or 0) * seconds for part, seconds in zip(match.group(2, 4, 5), _SECONDS, strict=True))
    duration = whole + Decimal((match[6] or "0").replace(",", "."))
    if not -(1 << 63) <= math.floor(duration) < 1 << 63:
        return None
    return -duration if match[1] == "-" else duration


def offset_reset(key: str, value: Value) -> None:
    """``earliest``, ``latest`` or ``by_duration:`` and an ISO 8601 duration that is not negative."""
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


_HOST_AND_LIMIT: Final = r"[^,\s]+:[0-9]{1,10}"


def limits_by_host(key: str, value: Value) -> None:
    """Pairs of host:number, separated by commas."""
    for pair in filter(None, (part.strip() for part in str(value or "").split(","))):
        if not re.fullmatch(_HOST_AND_LIMIT, pair):
            raise ConfigError.of_value(key, value, f"{pair} is not a pair of host:limit")


_HOST_NAME: Final = r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?"


def host_names(key: str, value: Value) -> None:
    """A list of host names, without ports."""
    for name in value if isinstance(value, tuple) else ():
        if not re.fullmatch(_HOST_NAME, name):
            raise ConfigError.of_value(key, value, f"{name} is not a host name; it has no scheme and no port")


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
"""RE2's complaints about what Java's expressions have: look-around, back-references, more classes; empty: too large."""


def client_matches(key: str, value: Value) -> None:
    """A list in which every element is a client's label, an equals sign and a regular expression."""
    for match in value if isinstance(value, tuple) else ():
        label, *patterns = match.rstrip("=").split("=")
        if label.strip() not in _LABELS or len(patterns) != 1 or not _is_pattern(patterns[0].strip()):
            raise ConfigError(f"Illegal client matching pattern: {match}", key=key, value=match)


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
