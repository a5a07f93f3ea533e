"""The hash by which Apache Kafka maps a group or transactional id to its coordinator partition."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

CACHED_LENGTH: Final = 256
"""Longer names are not cached: peers choose them, and a cache must not hold their kilobytes."""


def java_string_hash(text: str) -> int:
    """Java's ``String.hashCode``: over UTF-16 code units, as a signed 32-bit integer."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        # Java's int arithmetic wraps at 32 bits.
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


# The hash loops over the characters in Python, several times in each transaction.
_cached_hash = lru_cache(maxsize=4096)(java_string_hash)


def coordinator_partition(text: str, partition_count: int) -> int:
    """The partition of an internal topic that coordinates ``text``."""
    value = _cached_hash(text) if len(text) <= CACHED_LENGTH else java_string_hash(text)
    # Kafka's Utils.abs maps the minimum to 0.
    return (0 if value == -(1 << 31) else abs(value)) % partition_count
