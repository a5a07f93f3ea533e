"""The topics that a member of a "consumer" group subscribes to, read from its metadata.

Only the beginning of the metadata is read, which all versions of the consumer protocol share: some clients write later
fields wrongly, and these fields are not needed.
"""

from __future__ import annotations

from oncelog.base.ids import TopicName
from oncelog.records.errors import CorruptBatch
from oncelog.records.internal.primitives import Reader

_MIN_TOPIC_BYTES = 2


def subscribed_topics(metadata: bytes) -> tuple[TopicName, ...] | None:
    """The topics named in a member's metadata; None when it cannot be read."""
    reader = Reader(metadata)
    try:
        if reader.int16() < 0:
            return None
        return tuple(TopicName(reader.string()) for _ in range(reader.count(_MIN_TOPIC_BYTES)))
    except CorruptBatch:
        return None
