"""Broker keys about logs and the defaults of topics, with Apache Kafka 4.3's types, defaults and limits."""

from __future__ import annotations

from typing import Final

from oncelog.core.configs.kinds import ConfigKey, ConfigType, Update
from oncelog.core.configs.limits import at_least, between, gzip_level, named, one_of, words_of

BOOLEAN = ConfigType.BOOLEAN
STRING = ConfigType.STRING
INT = ConfigType.INT
LONG = ConfigType.LONG
DOUBLE = ConfigType.DOUBLE
LIST = ConfigType.LIST
CLUSTER_WIDE = Update.CLUSTER_WIDE

LOG_KEYS: Final = (
    ConfigKey(
        "log.local.retention.ms",
        LONG,
        "-2",
        at_least(-2),
        update=CLUSTER_WIDE,
        inert=True,
    ),
    ConfigKey(
        "log.local.retention.bytes",
        LONG,
        "-2",
        at_least(-2),
        update=CLUSTER_WIDE,
        inert=True,
    ),
    ConfigKey(
        "message.max.bytes",
        INT,
        "1048588",
        at_least(0),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "compression.type",
        STRING,
        "producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "compression.gzip.level",
        INT,
        "-1",
        gzip_level,
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "compression.lz4.level",
        INT,
        "9",
        between(1, 17),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "compression.zstd.level",
        INT,
        "3",
        between(-131072, 22),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        "5000",
        inert=True,
    ),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        "1.7976931348623157E308",
        update=CLUSTER_WIDE,
        inert=True,
    ),
    ConfigKey(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        "134217728",
        update=CLUSTER_WIDE,
        documentation="Memory for the keys seen in one compaction.",
    ),
    ConfigKey(
        "log.cleaner.io.buffer.size",
        INT,
        "524288",
        at_least(0),
        update=CLUSTER_WIDE,
        inert=True,
    ),
    ConfigKey(
        "log.cleaner.backoff.ms",
        LONG,
        "15000",
        at_least(0),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.min.cleanable.ratio",
        DOUBLE,
        "0.5",
        between(0, 1),
        update=CLUSTER_WIDE,
    ),
    ConfigKey("log.cleaner.enable", BOOLEAN, "true"),
    ConfigKey(
        "log.cleaner.delete.retention.ms",
        LONG,
        "86400000",
        at_least(0),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.min.compaction.lag.ms",
        LONG,
        "0",
        at_least(0),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.max.compaction.lag.ms",
        LONG,
        "9223372036854775807",
        at_least(1),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.dir",
        LIST,
        "/tmp/kafka-logs",
        named,
        documentation=("The directory that holds the data; serve --data-dir sets it."),
    ),
    ConfigKey(
        "log.dirs",
        LIST,
        None,
        named,
        documentation="The directory that holds the data, if set instead of log.dir; one is supported.",
    ),
    ConfigKey(
        "log.segment.bytes",
        INT,
        "1073741824",
        at_least(1048576),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.roll.ms",
        LONG,
        None,
        update=CLUSTER_WIDE,
        synonym="log.roll.hours",
    ),
    ConfigKey("log.roll.hours", INT, "168", at_least(1)),
    ConfigKey(
        "log.roll.jitter.ms",
        LONG,
        None,
        update=CLUSTER_WIDE,
        synonym="log.roll.jitter.hours",
    ),
    ConfigKey("log.roll.jitter.hours", INT, "0", at_least(0)),
    ConfigKey(
        "log.retention.ms",
        LONG,
        None,
        update=CLUSTER_WIDE,
        synonym="log.retention.minutes",
    ),
    ConfigKey(
        "log.retention.minutes",
        INT,
        None,
        synonym="log.retention.hours",
    ),
    ConfigKey("log.retention.hours", INT, "168"),
    ConfigKey(
        "log.retention.bytes",
        LONG,
        "-1",
        update=CLUSTER_WIDE,
    ),
    ConfigKey("log.retention.check.interval.ms", LONG, "300000", at_least(1)),
    ConfigKey(
        "log.cleanup.policy",
        LIST,
        "delete",
        words_of("compact", "delete"),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.index.size.max.bytes",
        INT,
        "10485760",
        at_least(4),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.index.interval.bytes",
        INT,
        "4096",
        at_least(0),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.flush.interval.messages",
        LONG,
        "9223372036854775807",
        at_least(1),
        update=CLUSTER_WIDE,
        documentation="Records after which a log is flushed to disk, whatever log.sync.policy says.",
    ),
    ConfigKey(
        "log.segment.delete.delay.ms",
        LONG,
        "60000",
        at_least(0),
        update=CLUSTER_WIDE,
        documentation="Time between a segment's removal from the log and the removal of its files.",
    ),
    ConfigKey("log.flush.scheduler.interval.ms", LONG, "9223372036854775807"),
    ConfigKey(
        "log.flush.interval.ms",
        LONG,
        None,
        update=CLUSTER_WIDE,
        synonym="log.flush.scheduler.interval.ms",
        documentation=(
            "Time after which appended records are flushed to disk; not set: log.flush.scheduler.interval.ms."
        ),
    ),
    ConfigKey(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        "60000",
        at_least(0),
    ),
    ConfigKey(
        "log.flush.start.offset.checkpoint.interval.ms",
        INT,
        "60000",
        at_least(0),
        inert=True,
    ),
    ConfigKey(
        "log.preallocate",
        BOOLEAN,
        "false",
        update=CLUSTER_WIDE,
        inert=True,
    ),
    ConfigKey(
        "num.recovery.threads.per.data.dir",
        INT,
        "2",
        at_least(1),
        update=CLUSTER_WIDE,
        inert=True,
    ),
    ConfigKey(
        "log.message.timestamp.type",
        STRING,
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.message.timestamp.before.max.ms",
        LONG,
        "9223372036854775807",
        at_least(0),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.message.timestamp.after.max.ms",
        LONG,
        "3600000",
        at_least(0),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.initial.task.delay.ms",
        LONG,
        "30000",
        at_least(0),
        internal=True,
        inert=True,
        documentation="Time after start before the first look for segments to delete.",
    ),
)
