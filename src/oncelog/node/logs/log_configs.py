"""A topic's configuration, and the broker's, as storage takes them."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.topic import TopicConfig
from oncelog.storage.log_config import COMPACT, DELETE, LOG_APPEND_TIME, LogConfig, StorageConfig

_SAME: Final = frozenset(LogConfig._fields) & frozenset(TopicConfig._fields)
"""Keys that both sides name and type alike."""


@lru_cache(maxsize=1024)
def log_config(topic: TopicConfig) -> LogConfig:
    """The values that a log of the topic obeys; equal configurations share one instance."""
    values = {name: getattr(topic, name) for name in _SAME}
    policy = (DELETE,) * topic.cleanup_delete + (COMPACT,) * topic.cleanup_compact
    return LogConfig(
        **values,
        cleanup_policy=policy,
        message_timestamp_type=LOG_APPEND_TIME if topic.log_append_time else "CreateTime",
    )


def storage_config(config: BrokerConfig) -> StorageConfig:
    """The settings that all logs of a broker share."""
    return StorageConfig(
        producer_id_expiration_ms=int(config.get("producer.id.expiration.ms")),
        cleaner_dedupe_buffer_bytes=int(config.get("log.cleaner.dedupe.buffer.size")),
        cleaner_enable=bool(config.get("log.cleaner.enable")),
        max_decompressed_bytes=int(config.get("oncelog.decompressed.max.bytes")),
        validates_records=config.get("oncelog.record.validation") == "records",
    )
