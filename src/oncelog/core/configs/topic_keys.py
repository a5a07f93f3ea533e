"""Every key a topic may set, with Apache Kafka 4.3's type, default and limits.

``synonym`` is the broker key whose value is the topic's default.
"""

from __future__ import annotations

from typing import Final

from oncelog.core.configs.kinds import ConfigKey, ConfigType
from oncelog.core.configs.limits import at_least, between, gzip_level, one_of, throttled_replicas, words_of

BOOLEAN, STRING, INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
LONG, DOUBLE, LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST

MOST_INT64: Final = "9223372036854775807"

COMPRESSION_TYPES: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")

TOPIC_KEYS: Final = (
    ConfigKey(
        "cleanup.policy",
        LIST,
        "delete",
        words_of("compact", "delete"),
        synonym="log.cleanup.policy",
    ),
    ConfigKey(
        "compression.gzip.level",
        INT,
        "-1",
        gzip_level,
        synonym="compression.gzip.level",
    ),
    ConfigKey(
        "compression.lz4.level",
        INT,
        "9",
        between(1, 17),
        synonym="compression.lz4.level",
    ),
    ConfigKey(
        "compression.type",
        STRING,
        "producer",
        one_of(*COMPRESSION_TYPES),
        synonym="compression.type",
    ),
    ConfigKey(
        "compression.zstd.level",
        INT,
        "3",
        between(-131072, 22),
        synonym="compression.zstd.level",
    ),
    ConfigKey(
        "delete.retention.ms",
        LONG,
        "86400000",
        at_least(0),
        synonym="log.cleaner.delete.retention.ms",
    ),
    ConfigKey(
        "file.delete.delay.ms",
        LONG,
        "60000",
        at_least(0),
        synonym="log.segment.delete.delay.ms",
        documentation="Time between a segment's removal from the log and the removal of its files.",
    ),
    ConfigKey(
        "flush.messages",
        LONG,
        MOST_INT64,
        at_least(1),
        synonym="log.flush.interval.messages",
        documentation="Records after which the log is flushed to disk, whatever log.sync.policy says.",
    ),
    ConfigKey(
        "flush.ms",
        LONG,
        MOST_INT64,
        at_least(0),
        synonym="log.flush.interval.ms",
        documentation="Time after which appended records are flushed to disk, whatever log.sync.policy says.",
    ),
    ConfigKey("follower.replication.throttled.replicas", LIST, "", throttled_replicas, may_repeat=True),
    ConfigKey(
        "index.interval.bytes",
        INT,
        "4096",
        at_least(0),
        synonym="log.index.interval.bytes",
    ),
    ConfigKey("leader.replication.throttled.replicas", LIST, "", throttled_replicas, may_repeat=True),
    ConfigKey("local.retention.bytes", LONG, "-2", at_least(-2), synonym="log.local.retention.bytes", inert=True),
    ConfigKey("local.retention.ms", LONG, "-2", at_least(-2), synonym="log.local.retention.ms", inert=True),
    ConfigKey(
        "max.compaction.lag.ms",
        LONG,
        MOST_INT64,
        at_least(1),
        synonym="log.cleaner.max.compaction.lag.ms",
    ),
    ConfigKey(
        "max.message.bytes",
        INT,
        "1048588",
        at_least(0),
        synonym="message.max.bytes",
    ),
    ConfigKey(
        "message.timestamp.after.max.ms",
        LONG,
        "3600000",
        at_least(0),
        synonym="log.message.timestamp.after.max.ms",
    ),
    ConfigKey(
        "message.timestamp.before.max.ms",
        LONG,
        MOST_INT64,
        at_least(0),
        synonym="log.message.timestamp.before.max.ms",
    ),
    ConfigKey(
        "message.timestamp.type",
        STRING,
        "CreateTime",
        one_of(*TIMESTAMP_TYPES),
        synonym="log.message.timestamp.type",
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio",
        DOUBLE,
        "0.5",
        between(0, 1),
        synonym="log.cleaner.min.cleanable.ratio",
    ),
    ConfigKey(
        "min.compaction.lag.ms",
        LONG,
        "0",
        at_least(0),
        synonym="log.cleaner.min.compaction.lag.ms",
    ),
    ConfigKey(
        "min.insync.replicas",
        INT,
        "1",
        at_least(1),
        synonym="min.insync.replicas",
    ),
    ConfigKey("preallocate", BOOLEAN, "false", synonym="log.preallocate", inert=True),
    ConfigKey("remote.log.copy.disable", BOOLEAN, "false", inert=True),
    ConfigKey("remote.log.delete.on.disable", BOOLEAN, "false", inert=True),
    ConfigKey(
        "remote.storage.enable",
        BOOLEAN,
        "false",
        documentation="Turns tiered storage on for the topic; there is none here, so true is refused.",
    ),
    ConfigKey(
        "retention.bytes",
        LONG,
        "-1",
        synonym="log.retention.bytes",
    ),
    ConfigKey(
        "retention.ms",
        LONG,
        "604800000",
        at_least(-1),
        synonym="log.retention.ms",
    ),
    ConfigKey(
        "segment.bytes",
        INT,
        "1073741824",
        at_least(1048576),
        synonym="log.segment.bytes",
    ),
    ConfigKey(
        "segment.index.bytes",
        INT,
        "10485760",
        at_least(4),
        synonym="log.index.size.max.bytes",
        documentation="The largest size of a segment's indexes; a full index begins a new segment.",
    ),
    ConfigKey(
        "segment.jitter.ms",
        LONG,
        "0",
        at_least(0),
        synonym="log.roll.jitter.ms",
    ),
    ConfigKey(
        "segment.ms",
        LONG,
        "604800000",
        at_least(1),
        synonym="log.roll.ms",
    ),
    ConfigKey(
        "unclean.leader.election.enable",
        BOOLEAN,
        "false",
        synonym="unclean.leader.election.enable",
        documentation="Whether a replica that is not in sync may lead when no other can, losing records.",
    ),
    ConfigKey(
        "internal.segment.bytes",
        INT,
        None,
        internal=True,
        documentation="Overrides segment.bytes without its lower limit; for tests.",
    ),
)

TOPIC_KEYS_BY_NAME: Final = {key.name: key for key in TOPIC_KEYS}
