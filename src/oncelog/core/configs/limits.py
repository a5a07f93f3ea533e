"""The limits that keys put on their values, each a function that makes a ``Check``."""

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
    one = one_of(*words)

    def check(key: str, value: Value) -> None:
        for word in value if isinstance(value, tuple) else ():
            one(key, word)

    return check


def non_empty(key: str, value: Value) -> None:
    """A text that is not empty (or not set)."""
    if value == "":
        raise ConfigError.of_value(key, value, "String must be non-empty")


def named(key: str, value: Value) -> None:
    """A list with an element at least (or not set)."""
    if value == ():
        raise ConfigError(
            f"Configuration '{key}' must not be empty. Valid values include: any non-empty value", key=key, value=value
        )


def gzip_level(key: str, value: Value) -> None:
    """A gzip level: 1 to 9, or -1 for the codec's own choice."""
    if isinstance(value, int) and value != -1 and not 1 <= value <= 9:
        raise ConfigError.of_value(key, value, "Value must be between 1 and 9 or equal to -1")


_PART: Final = r"([-+]?[0-9]{1,40})"
_DURATION: Final = (
    rf"([-+]?)P(?:{_PART}D)?(T(?:{_PART}H)?(?:{_PART}M)?(?:([-+]?[0-9]{{1,40}}(?:[.,][0-9]{{0,9}})?)S)?)?"
)
"""An expression that is compiled by its first use, since compiling it takes longer than the rest of this module."""
_SECONDS: Final = (86_400, 3_600, 60)


def _duration_seconds(text: str) -> Decimal | None:
    """An ISO 8601 duration as Java's ``Duration.parse`` reads it; None where it refuses."""
    from decimal import Decimal  # few values are written so: no start has to wait for it

    found = re.fullmatch(_DURATION, text, re.IGNORECASE | re.ASCII)
    if found is None or found[3] in ("T", "t") or not any(found.group(2, 4, 5, 6)):
        return None
    whole = sum(int(part or 0) * seconds for part, seconds in zip(found.group(2, 4, 5), _SECONDS, strict=True))
    duration = whole + Decimal((found[6] or "0").replace(",", "."))
    if not -(1 << 63) <= math.floor(duration) < 1 << 63:
        return None
    return -duration if found[1] == "-" else duration


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


_HOST_AND_LIMIT: Final = re.compile(r"[^,\s]+:[0-9]{1,10}")


def limits_by_host(key: str, value: Value) -> None:
    """Pairs of host:number, separated by commas."""
    for pair in filter(None, (part.strip() for part in str(value or "").split(","))):
        if not _HOST_AND_LIMIT.fullmatch(pair):
            raise ConfigError.of_value(key, value, f"{pair} is not a pair of host:limit")


_HOST_NAME: Final = r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?"
"""Compiled by its first use, as few configurations have one."""


def host_names(key: str, value: Value) -> None:
    """A list of host names, without ports."""
    for name in value if isinstance(value, tuple) else ():
        if not re.fullmatch(_HOST_NAME, name):
            raise ConfigError.of_value(key, value, f"{name} is not a host name; it has no scheme and no port")


_THROTTLED: Final = re.compile(r"[0-9]+:[0-9]+")


def throttled_replicas(key: str, value: Value) -> None:
    """``*``, or a list of partition:broker."""
    replicas: Collection[str] = value if isinstance(value, tuple) else ()
    if tuple(replicas) == ("*",) or all(_THROTTLED.fullmatch(replica) for replica in replicas):
        return
    reason = (
        f"{key} must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )
    raise ConfigError.of_value(key, value, reason)
