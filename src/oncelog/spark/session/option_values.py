"""Single values of options: numbers, booleans, durations, JSON. Every refusal names the option and what was given."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from oncelog.base.units import DAY_MS, HOUR_MS, INT64_MAX, MINUTE_MS, SECOND_MS
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


def json_object(text: str, example: str, option: str) -> dict[str, Any]:
    """A JSON object. Raises OptionError with an example of one."""
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise OptionError(f"Expected e.g. {example} for option '{option}', got {text}")
    return parsed


def integer(value: object, text: str, example: str) -> int:
    """A whole number inside of ``text``."""
    try:
        return int(str(value))
    except ValueError:
        raise OptionError(f"Expected e.g. {example}, got {text}") from None


def optional(options: Mapping[str, str], name: str, parse: Callable[[str], T]) -> T | None:
    """An option's value parsed by ``parse``; None if the option is not set."""
    text = options.get(name.lower())
    return None if text is None else parse(text)


def optional_positive(options: Mapping[str, str], name: str) -> int | None:
    """A whole number above zero, or None."""
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdigit() or not 0 < int(text) <= INT64_MAX:
        raise OptionError(f"{name} must be positive, got {text!r}")
    return int(text)


def boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """``true`` or ``false``, in any case."""
    text = options.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{name} must be 'true' or 'false', got {text!r}")
    return text.lower() == "true"


def duration_ms(options: Mapping[str, str], name: str, default_ms: int) -> int:
    """A duration as Spark writes them: ``500ms``, ``30s``, ``15m``, ``1h``, ``1d``, ``5min``; milliseconds without a
    unit."""
    text = options.get(name.lower())
    if text is None:
        return default_ms
    found = _DURATION.fullmatch(text.lower())
    if found is None or found[2] not in _UNITS_MS:
        raise OptionError(f"{name} must be a duration such as 500ms, 30s, 15m or 1h, got {text!r}")
    return int(found[1]) * _UNITS_MS[found[2]]
