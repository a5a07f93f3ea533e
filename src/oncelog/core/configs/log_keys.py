"""Broker keys about logs and the defaults of topics, with Apache Kafka 4.3's types, defaults and limits."""

from __future__ import annotations

from typing import Final

from oncelog.core.configs.kinds import ConfigKey, ConfigType, Update
from oncelog.core.configs.limits import at_least, between, gzip_level, one_of, words_of

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
        "Tiered storage's limit of local age; there is no tiered storage here.",
        at_least(-2),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.local.retention.bytes",
        LONG,
        "-2",
        "Tiered storage's limit of local bytes; there is no tiered storage here.",
        at_least(-2),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "message.max.bytes",
        INT,
        "1048588",
        "The largest record batch accepted, as compressed by its producer.",
        at_least(0),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "compression.type",
        STRING,
        "producer",
        "The codec stored batches have; producer keeps what the producer chose.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "compression.gzip.level",
        INT,
        "-1",
        "Level used where the broker compresses with gzip.",
        gzip_level,
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "compression.lz4.level",
        INT,
        "9",
        "Level used where the broker compresses with lz4.",
        between(1, 17),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "compression.zstd.level",
        INT,
        "3",
        "Level used where the broker compresses with zstd.",
        between(-131072, 22),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "replica.high.watermark.checkpoint.interval.ms", LONG, "5000", "Time between two writes of the high watermarks."
    ),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        "1.7976931348623157E308",
        "The most compaction reads and writes per second.",
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        "134217728",
        "Memory for the keys seen in one compaction.",
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.io.buffer.size",
        INT,
        "524288",
        "Memory for one read of a compaction.",
        at_least(0),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.backoff.ms",
        LONG,
        "15000",
        "Time between two looks for logs to compact.",
        at_least(0),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.min.cleanable.ratio",
        DOUBLE,
        "0.5",
        "The share of a compacted log that must be uncompacted before it is compacted again.",
        between(0, 1),
        update=CLUSTER_WIDE,
    ),
    ConfigKey("log.cleaner.enable", BOOLEAN, "true", "Whether compacted topics are compacted."),
    ConfigKey(
        "log.cleaner.delete.retention.ms",
        LONG,
        "86400000",
        "How long compacted topics keep tombstones and transaction markers.",
        at_least(0),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.min.compaction.lag.ms",
        LONG,
        "0",
        "A record stays uncompacted at least this long.",
        at_least(0),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.max.compaction.lag.ms",
        LONG,
        "9223372036854775807",
        "A record is compacted no later than this after it was written.",
        at_least(1),
        update=CLUSTER_WIDE,
    ),
    ConfigKey("log.dir", LIST, "/tmp/kafka-logs", "The directory that holds the data; serve --data-dir sets it."),
    ConfigKey(
        "log.dirs", LIST, None, "The directory that holds the data, if set instead of log.dir; one is supported."
    ),
    ConfigKey(
        "log.segment.bytes",
        INT,
        "1073741824",
        "Size at which a new segment is begun.",
        at_least(1048576),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.roll.ms",
        LONG,
        None,
        "Age at which a new segment is begun even if the old one is not full; not set: log.roll.hours.",
        update=CLUSTER_WIDE,
        synonym="log.roll.hours",
    ),
    ConfigKey("log.roll.hours", INT, "168", "As log.roll.ms, in hours.", at_least(1)),
    ConfigKey(
        "log.roll.jitter.ms",
        LONG,
        None,
        "The most by which that age is shortened at random; not set: log.roll.jitter.hours.",
        update=CLUSTER_WIDE,
        synonym="log.roll.jitter.hours",
    ),
    ConfigKey("log.roll.jitter.hours", INT, "0", "As log.roll.jitter.ms, in hours.", at_least(0)),
    ConfigKey(
        "log.retention.ms",
        LONG,
        None,
        "Age beyond which segments are deleted; -1: no limit; not set: log.retention.minutes.",
        update=CLUSTER_WIDE,
        synonym="log.retention.minutes",
    ),
    ConfigKey(
        "log.retention.minutes",
        INT,
        None,
        "As log.retention.ms, in minutes; not set: log.retention.hours.",
        synonym="log.retention.hours",
    ),
    ConfigKey("log.retention.hours", INT, "168", "As log.retention.ms, in hours."),
    ConfigKey(
        "log.retention.bytes",
        LONG,
        "-1",
        "Size of a partition beyond which its oldest segments are deleted; -1: no limit.",
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.retention.check.interval.ms", LONG, "300000", "Time between two looks for segments to delete.", at_least(1)
    ),
    ConfigKey(
        "log.cleanup.policy",
        LIST,
        "delete",
        "What happens to old data: delete, compact or both.",
        words_of("compact", "delete"),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.index.size.max.bytes",
        INT,
        "10485760",
        "The largest size of a segment's indexes.",
        at_least(4),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.index.interval.bytes",
        INT,
        "4096",
        "Bytes of log between two entries of the offset index.",
        at_least(0),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.flush.interval.messages",
        LONG,
        "9223372036854775807",
        "Records after which a log is flushed to disk, whatever log.sync.policy says.",
        at_least(1),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.segment.delete.delay.ms",
        LONG,
        "60000",
        "Time between a segment's removal from the log and the removal of its files.",
        at_least(0),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.flush.scheduler.interval.ms", LONG, "9223372036854775807", "Time between two looks for logs to flush."
    ),
    ConfigKey(
        "log.flush.interval.ms",
        LONG,
        None,
        "Time after which appended records are flushed to disk; not set: log.flush.scheduler.interval.ms.",
        update=CLUSTER_WIDE,
        synonym="log.flush.scheduler.interval.ms",
    ),
    ConfigKey(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        "60000",
        "Time between two writes of the recovery points.",
        at_least(0),
    ),
    ConfigKey(
        "log.flush.start.offset.checkpoint.interval.ms",
        INT,
        "60000",
        "Time between two writes of the log start offsets.",
        at_least(0),
    ),
    ConfigKey(
        "log.preallocate",
        BOOLEAN,
        "false",
        "Whether segment files get their full length when created; they never do here.",
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "num.recovery.threads.per.data.dir",
        INT,
        "2",
        "Workers that recover logs at start.",
        at_least(1),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.message.timestamp.type",
        STRING,
        "CreateTime",
        "Whether records keep their producer's time (CreateTime) or get the broker's (LogAppendTime).",
        one_of("CreateTime", "LogAppendTime"),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.message.timestamp.before.max.ms",
        LONG,
        "9223372036854775807",
        "How far behind the broker's clock a record's timestamp may be.",
        at_least(0),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.message.timestamp.after.max.ms",
        LONG,
        "3600000",
        "How far ahead of the broker's clock a record's timestamp may be.",
        at_least(0),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.initial.task.delay.ms",
        LONG,
        "30000",
        "Time after start before the first look for segments to delete.",
        at_least(0),
        internal=True,
    ),
)
