"""A topic's configuration: its own values over the broker's defaults.

``TopicConfig`` has typed values, ready for the log; ``check_topic_configs`` validates like Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from oncelog.base.bounded_cache import Memo, text_bytes
from oncelog.base.units import MIB
from oncelog.core.configs.broker import BrokerConfig, Source, Synonym
from oncelog.core.configs.keys import TOPIC_KEYS
from oncelog.core.configs.kinds import ConfigError, ConfigKey, Value, canonical

_REMEMBERED_BYTES: Final = 4 * MIB
"""Memory for thousands of different typed configurations."""
_CONFIG_BYTES: Final = 600
"""Memory of one without its texts."""


class TopicConfig(NamedTuple):
    """The settings of a topic's logs. Times in milliseconds, sizes in bytes; −1: unlimited."""

    cleanup_delete: bool
    cleanup_compact: bool
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    index_interval_bytes: int
    max_compaction_lag_ms: int
    max_decompressed_message_bytes: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    log_append_time: bool
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election: bool


class TopicConfigs:
    """Typed configurations under one broker configuration; equal overrides share an instance."""

    def __init__(self, broker: BrokerConfig) -> None:
        self._broker = broker
        self._known: Memo[frozenset[tuple[str, str]], TopicConfig] = Memo(_REMEMBERED_BYTES)

    def of(self, overrides: Mapping[str, str]) -> TopicConfig:
        which = frozenset(overrides.items())
        config = self._known.get(which)
        if config is None:
            config = topic_config(self._broker, overrides)
            texts = sum(text_bytes(name) + text_bytes(value) for name, value in which)
            self._known.remember(which, config, _CONFIG_BYTES + texts)
        return config


def topic_value(broker: BrokerConfig, overrides: Mapping[str, str], key: ConfigKey) -> Value:
    text = overrides.get(key.name)
    if text is not None:
        return key.parse(text)
    if key.name in _DERIVED:
        return int(getattr(broker, _DERIVED[key.name]))
    if key.synonym is not None:
        value: Value = broker.get(key.synonym)
        return value
    return key.default_value()


def allows_unclean_elections(broker: BrokerConfig, overrides: Mapping[str, str]) -> bool:
    """True if an out-of-sync replica may lead when no other can."""
    return bool(topic_value(broker, overrides, TOPIC_KEYS["unclean.leader.election.enable"]))


_DERIVED: Final = {
    "retention.ms": "log_retention_ms",
    "segment.ms": "log_roll_ms",
    "segment.jitter.ms": "log_roll_jitter_ms",
    "flush.ms": "log_flush_interval_ms",
}
"""Topic keys whose default depends on several broker keys, and the ``BrokerConfig`` property that computes it."""


def topic_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """Unknown keys in ``overrides`` are ignored."""
    topic_texts = {name: text for name, text in overrides.items() if name in TOPIC_KEYS}

    def value(name: str) -> Value:
        return topic_value(broker, topic_texts, TOPIC_KEYS[name])

    def number(name: str) -> int:
        return int(value(name))  # type: ignore[arg-type]  # the key's type is INT or LONG

    policy = value("cleanup.policy")
    segment_bytes = value("internal.segment.bytes")
    return TopicConfig(
        cleanup_delete=isinstance(policy, tuple) and "delete" in policy,
        cleanup_compact=isinstance(policy, tuple) and "compact" in policy,
        compression_type=str(value("compression.type")),
        compression_gzip_level=number("compression.gzip.level"),
        compression_lz4_level=number("compression.lz4.level"),
        compression_zstd_level=number("compression.zstd.level"),
        delete_retention_ms=number("delete.retention.ms"),
        file_delete_delay_ms=number("file.delete.delay.ms"),
        flush_messages=number("flush.messages"),
        flush_ms=number("flush.ms"),
        index_interval_bytes=number("index.interval.bytes"),
        max_compaction_lag_ms=number("max.compaction.lag.ms"),
        max_decompressed_message_bytes=number("max.decompressed.message.bytes"),
        max_message_bytes=number("max.message.bytes"),
        message_timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        message_timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        log_append_time=value("message.timestamp.type") == "LogAppendTime",
        min_cleanable_dirty_ratio=float(value("min.cleanable.dirty.ratio")),  # type: ignore[arg-type]  # a DOUBLE
        min_compaction_lag_ms=number("min.compaction.lag.ms"),
        min_insync_replicas=number("min.insync.replicas"),
        preallocate=bool(value("preallocate")),
        retention_bytes=number("retention.bytes"),
        retention_ms=number("retention.ms"),
        # Apache Kafka's tests set the internal key to segments smaller than segment.bytes allows.
        segment_bytes=int(segment_bytes) if isinstance(segment_bytes, int) else number("segment.bytes"),
        segment_index_bytes=number("segment.index.bytes"),
        segment_jitter_ms=number("segment.jitter.ms"),
        segment_ms=number("segment.ms"),
        unclean_leader_election=bool(value("unclean.leader.election.enable")),
    )


def topic_synonyms(broker: BrokerConfig, overrides: Mapping[str, str], key: ConfigKey) -> list[Synonym]:
    """The sources of a topic's value, the effective one first."""
    synonyms = broker.synonyms(key.synonym) if key.synonym is not None else []
    if key.name in overrides:
        synonyms.insert(0, Synonym(key.name, canonical(key.parse(overrides[key.name])), Source.TOPIC))
    return synonyms


def check_topic_configs(broker: BrokerConfig, configs: Mapping[str, str]) -> None:
    """Raise ConfigError unless a topic may have exactly these configs."""
    for name in configs:
        if name not in TOPIC_KEYS:
            raise ConfigError(f"Unknown topic config name: {name}", key=name, value=configs[name])
    values = {name: TOPIC_KEYS[name].parse(text) for name, text in configs.items()}
    low = values.get("min.compaction.lag.ms", broker.get("log.cleaner.min.compaction.lag.ms"))
    high = values.get("max.compaction.lag.ms", broker.get("log.cleaner.max.compaction.lag.ms"))
    if isinstance(low, int) and isinstance(high, int) and low > high:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})",
            key="min.compaction.lag.ms",
            value=low,
        )
    if values.get("remote.storage.enable") is True:
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
            key="remote.storage.enable",
            value=True,
        )
