"""Message sets: Kafka's formats 0 (0.8 and 0.9) and 1 (0.10), which record batches replaced in 0.11 (KIP-98).

The value of a compressed entry (a wrapper) is another message set. Other rooms import the names below from the package.
"""

from __future__ import annotations

from oncelog.legacy.message_set.conversion import down_converted, up_converted
from oncelog.legacy.message_set.entry import (
    LOG_OVERHEAD,
    MAGIC_V0,
    MAGIC_V1,
    MIN_SIZES,
    Entry,
    Limits,
    TimestampType,
    crc_matches,
    read_entry,
    shallow,
)
from oncelog.legacy.message_set.reading import deep, messages_of

__all__ = [
    "LOG_OVERHEAD",
    "MAGIC_V0",
    "MAGIC_V1",
    "MIN_SIZES",
    "Entry",
    "Limits",
    "TimestampType",
    "crc_matches",
    "deep",
    "down_converted",
    "messages_of",
    "read_entry",
    "shallow",
    "up_converted",
]
