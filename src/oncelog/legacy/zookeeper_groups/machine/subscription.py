"""Subscriptions: the topics a consumer reads and its number of threads, its own or one registered by others.

A subscription is static (topics with their numbers of streams) or a filter (a regular expression with one number): a
``white_list`` reads matching topics, a ``black_list`` all others. Kafka's rules: in a filter ``,`` means ``|``,
surrounding spaces and quotes are ignored, a whole name must match, internal topics are excluded. Another consumer's
expression is compiled by RE2 (``records.patterns``) unless this process uses the same: Python could take exponential
time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from oncelog.base.ids import INTERNAL_TOPICS
from oncelog.client.errors import ConfigError
from oncelog.records.patterns import Pattern, PatternRefused

STATIC: Final = "static"
WHITE_LIST: Final = "white_list"
BLACK_LIST: Final = "black_list"
_PATTERNS: Final = (STATIC, WHITE_LIST, BLACK_LIST)
_MAX_STREAMS: Final = 100_000  # A registration with more streams is treated as unreadable.


@dataclass(frozen=True)
class Subscription:
    """``streams`` is the number of threads by topic or, for a filter, by its only expression."""

    pattern: str
    streams: Mapping[str, int]
    is_own: bool = field(default=False, compare=False)
    """True if this process chose the expression: Python compiles it then, RE2 otherwise."""

    @classmethod
    def to_topics(cls, topics: Iterable[str], streams: int = 1) -> Subscription:
        """A static subscription with the same number of streams for every topic."""
        return cls(STATIC, dict.fromkeys(topics, _checked(streams)))

    @classmethod
    def to_filter(cls, expression: str, streams: int = 1, *, black_list: bool = False) -> Subscription:
        """A filter. Raises ConfigError for an invalid regular expression."""
        cleaned = expression.strip().replace(",", "|").replace(" ", "").strip("\"'")
        try:
            re.compile(cleaned)
        except re.error as error:
            raise ConfigError(f"topic filter {expression!r} is not a regular expression: {error}") from None
        return cls(BLACK_LIST if black_list else WHITE_LIST, {cleaned: _checked(streams)}, is_own=True)

    def as_read_by(self, reader: Subscription) -> Subscription:
        """The same subscription, marked as own if it is a filter with the expression of ``reader``, which is own."""
        is_same = not self.is_static and not reader.is_static and [*self.streams] == [*reader.streams]
        return replace(self, is_own=True) if is_same and reader.is_own else self

    @property
    def is_static(self) -> bool:
        return self.pattern == STATIC

    def streams_of(self, topic: str, *, exclude_internal: bool) -> int:
        """The number of threads that read a topic; 0 if it is not read."""
        if self.is_static:
            return self.streams.get(topic, 0)
        [count] = self.streams.values()
        if self._matches is None or (exclude_internal and topic in INTERNAL_TOPICS):
            return 0
        return count if self._matches(topic) == (self.pattern == WHITE_LIST) else 0

    @cached_property
    def _matches(self) -> Callable[[str], bool] | None:
        """A predicate for the filter's expression; None if the expression cannot be compiled."""
        [expression] = self.streams
        if self.is_own:
            compiled = re.compile(expression)
            return lambda topic: compiled.fullmatch(topic) is not None
        try:
            return Pattern(expression).matches
        except PatternRefused:
            return None


def _checked(streams: int) -> int:
    if not 1 <= streams <= _MAX_STREAMS:
        raise ConfigError(f"{streams} streams: a consumer has at least one, and at most {_MAX_STREAMS}")
    return streams


def registration_value(subscription: Subscription, now_ms: int) -> bytes:
    """The value of a consumer's node, in the format of Java's consumers. ``now_ms`` is the time since the epoch."""
    facts = {
        "version": 1,
        "subscription": dict(subscription.streams),
        "pattern": subscription.pattern,
        "timestamp": str(now_ms),
    }
    return json.dumps(facts, separators=(",", ":")).encode()


def read_registration(value: bytes) -> Subscription | None:
    """The subscription that a consumer registered; None if it cannot be read."""
    try:
        facts: Any = json.loads(value)
        pattern, streams = facts["pattern"], facts["subscription"]
        counts = {str(name): int(count) for name, count in streams.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if pattern not in _PATTERNS or any(not 0 < count <= _MAX_STREAMS for count in counts.values()):
        return None
    if pattern != STATIC and len(counts) != 1:
        return None
    return Subscription(pattern, counts)
