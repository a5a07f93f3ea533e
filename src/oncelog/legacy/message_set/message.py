"""Values of message sets: a message, the kind of its timestamp, and the bounds of reading."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

MAGIC_V0: Final = 0
MAGIC_V1: Final = 1


class TimestampType(IntEnum):
    """Kinds of a message's timestamp by who set it (KIP-32), with Apache Kafka's own ids."""

    NONE = -1
    """Format 0: there is no timestamp."""
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(frozen=True, slots=True)
class Message:
    """A message as a consumer sees it: absolute offset, timestamp in milliseconds (−1: none), key and value.

    ``magic`` is the format it was read in. Formats 0 and 1 have no headers.
    """

    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    magic: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of reading one outer entry.

    ``max_bytes`` is what decompressing may give, wrappers in wrappers included; it bounds the number of messages too,
    the smallest of which has 26 bytes. ``max_depth`` is how many wrappers may lie in one another: 0 refuses compressed
    entries, 1 is all that Apache Kafka since 0.10 reads, 0.8's own consumers follow any number.
    """

    max_bytes: int = 128 << 20
    max_depth: int = 1


DEFAULT_LIMITS: Final = Limits()
