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
        "What happens to old data: delete removes whole segments by age or size, compact keeps the last value of "
        "each key; both may be given.",
        words_of("compact", "delete"),
        synonym="log.cleanup.policy",
    ),
    ConfigKey(
        "compression.gzip.level",
        INT,
        "-1",
        "Level used where the broker compresses with gzip.",
        gzip_level,
        synonym="compression.gzip.level",
    ),
    ConfigKey(
        "compression.lz4.level",
        INT,
        "9",
        "Level used where the broker compresses with lz4.",
        between(1, 17),
        synonym="compression.lz4.level",
    ),
    ConfigKey(
        "compression.type",
        STRING,
        "producer",
        "The codec stored batches have; producer keeps what the producer chose.",
        one_of(*COMPRESSION_TYPES),
        synonym="compression.type",
    ),
    ConfigKey(
        "compression.zstd.level",
        INT,
        "3",
        "Level used where the broker compresses with zstd.",
        between(-131072, 22),
        synonym="compression.zstd.level",
    ),
    ConfigKey(
        "delete.retention.ms",
        LONG,
        "86400000",
        "How long a compacted topic keeps tombstones and transaction markers, so that a reader that started at the "
        "beginning within that time sees them.",
        at_least(0),
        synonym="log.cleaner.delete.retention.ms",
    ),
    ConfigKey(
        "file.delete.delay.ms",
        LONG,
        "60000",
        "Time between a segment's removal from the log and the removal of its files.",
        at_least(0),
        synonym="log.segment.delete.delay.ms",
    ),
    ConfigKey(
        "flush.messages",
        LONG,
        MOST_INT64,
        "Records after which the log is flushed to disk, whatever log.sync.policy says.",
        at_least(1),
        synonym="log.flush.interval.messages",
    ),
    ConfigKey(
        "flush.ms",
        LONG,
        MOST_INT64,
        "Time after which appended records are flushed to disk, whatever log.sync.policy says.",
        at_least(0),
        synonym="log.flush.interval.ms",
    ),
    ConfigKey(
        "follower.replication.throttled.replicas",
        LIST,
        "",
        "Replicas whose following is throttled, as partition:broker, or *.",
        throttled_replicas,
    ),
    ConfigKey(
        "index.interval.bytes",
        INT,
        "4096",
        "Bytes of log between two entries of the offset index.",
        at_least(0),
        synonym="log.index.interval.bytes",
    ),
    ConfigKey(
        "leader.replication.throttled.replicas",
        LIST,
        "",
        "Replicas whose leading is throttled, as partition:broker, or *.",
        throttled_replicas,
    ),
    ConfigKey(
        "local.retention.bytes",
        LONG,
        "-2",
        "Tiered storage's limit of local bytes; there is no tiered storage here.",
        at_least(-2),
        synonym="log.local.retention.bytes",
    ),
    ConfigKey(
        "local.retention.ms",
        LONG,
        "-2",
        "Tiered storage's limit of local age; there is no tiered storage here.",
        at_least(-2),
        synonym="log.local.retention.ms",
    ),
    ConfigKey(
        "max.compaction.lag.ms",
        LONG,
        MOST_INT64,
        "A record is compacted no later than this after it was written.",
        at_least(1),
        synonym="log.cleaner.max.compaction.lag.ms",
    ),
    ConfigKey(
        "max.message.bytes",
        INT,
        "1048588",
        "The largest record batch accepted, as compressed by its producer.",
        at_least(0),
        synonym="message.max.bytes",
    ),
    ConfigKey(
        "message.timestamp.after.max.ms",
        LONG,
        "3600000",
        "How far ahead of the broker's clock a record's timestamp may be.",
        at_least(0),
        synonym="log.message.timestamp.after.max.ms",
    ),
    ConfigKey(
        "message.timestamp.before.max.ms",
        LONG,
        MOST_INT64,
        "How far behind the broker's clock a record's timestamp may be.",
        at_least(0),
        synonym="log.message.timestamp.before.max.ms",
    ),
    ConfigKey(
        "message.timestamp.type",
        STRING,
        "CreateTime",
        "Whether records keep their producer's time (CreateTime) or get the broker's (LogAppendTime).",
        one_of(*TIMESTAMP_TYPES),
        synonym="log.message.timestamp.type",
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio",
        DOUBLE,
        "0.5",
        "The share of a compacted log that must be uncompacted before it is compacted again.",
        between(0, 1),
        synonym="log.cleaner.min.cleanable.ratio",
    ),
    ConfigKey(
        "min.compaction.lag.ms",
        LONG,
        "0",
        "A record stays uncompacted at least this long.",
        at_least(0),
        synonym="log.cleaner.min.compaction.lag.ms",
    ),
    ConfigKey(
        "min.insync.replicas",
        INT,
        "1",
        "Replicas that must have a record before a producer with acks=all is answered.",
        at_least(1),
        synonym="min.insync.replicas",
    ),
    ConfigKey(
        "preallocate",
        BOOLEAN,
        "false",
        "Whether segment files get their full length when created; they never do here.",
        synonym="log.preallocate",
    ),
    ConfigKey(
        "remote.log.copy.disable",
        BOOLEAN,
        "false",
        "Stops copying to tiered storage; there is none here.",
    ),
    ConfigKey(
        "remote.log.delete.on.disable",
        BOOLEAN,
        "false",
        "Removes tiered data when tiering ends; there is none here.",
    ),
    ConfigKey(
        "remote.storage.enable",
        BOOLEAN,
        "false",
        "Turns tiered storage on for the topic; there is none here, so true is refused.",
    ),
    ConfigKey(
        "retention.bytes",
        LONG,
        "-1",
        "Size of a partition beyond which its oldest segments are deleted; -1: no limit.",
        synonym="log.retention.bytes",
    ),
    ConfigKey(
        "retention.ms",
        LONG,
        "604800000",
        "Age beyond which segments are deleted; -1: no limit.",
        at_least(-1),
        synonym="log.retention.ms",
    ),
    ConfigKey(
        "segment.bytes",
        INT,
        "1073741824",
        "Size at which a new segment is begun.",
        at_least(1048576),
        synonym="log.segment.bytes",
    ),
    ConfigKey(
        "segment.index.bytes",
        INT,
        "10485760",
        "The largest size of a segment's indexes; a full index begins a new segment.",
        at_least(4),
        synonym="log.index.size.max.bytes",
    ),
    ConfigKey(
        "segment.jitter.ms",
        LONG,
        "0",
        "The most by which a segment's age limit is shortened at random, so that segments do not end all at once.",
        at_least(0),
        synonym="log.roll.jitter.ms",
    ),
    ConfigKey(
        "segment.ms",
        LONG,
        "604800000",
        "Age at which a new segment is begun even if the old one is not full.",
        at_least(1),
        synonym="log.roll.ms",
    ),
    ConfigKey(
        "unclean.leader.election.enable",
        BOOLEAN,
        "false",
        "Whether a replica that is not in sync may lead when no other can, losing records.",
        synonym="unclean.leader.election.enable",
    ),
    ConfigKey(
        "internal.segment.bytes",
        INT,
        None,
        "Overrides segment.bytes without its lower limit; for tests.",
        internal=True,
    ),
)

TOPIC_KEYS_BY_NAME: Final = {key.name: key for key in TOPIC_KEYS}
