"""Broker keys about groups, offsets, producers and transactions; Apache Kafka 4.3's types, defaults and limits."""

from __future__ import annotations

from typing import Final

from oncelog.core.configs.kinds import ConfigKey, ConfigType, Update
from oncelog.core.configs.limits import at_least

BOOLEAN = ConfigType.BOOLEAN
INT = ConfigType.INT
SHORT = ConfigType.SHORT
LONG = ConfigType.LONG
CLUSTER_WIDE = Update.CLUSTER_WIDE

GROUPS_KEYS: Final = (
    ConfigKey(
        "offsets.commit.timeout.ms",
        INT,
        "5000",
        "The longest a commit of offsets waits until it is durable.",
        at_least(1),
    ),
    ConfigKey(
        "offsets.load.buffer.size",
        INT,
        "5242880",
        "Bytes read at a time when the cache of offsets is rebuilt.",
        at_least(1),
        inert=True,
    ),
    ConfigKey(
        "offsets.topic.replication.factor",
        SHORT,
        "3",
        "Replicas of __consumer_offsets; not set: as many as there are brokers, at most 3.",
        at_least(1),
    ),
    ConfigKey("offsets.topic.num.partitions", INT, "50", "Partitions of __consumer_offsets.", at_least(1)),
    ConfigKey("offsets.topic.segment.bytes", INT, "104857600", "Segment size of __consumer_offsets.", at_least(1)),
    ConfigKey(
        "offsets.topic.compression.codec",
        INT,
        "0",
        "Codec of the batches written to __consumer_offsets, by its number.",
        inert=True,
    ),
    ConfigKey("offset.metadata.max.bytes", INT, "4096", "The longest text that may go with a committed offset."),
    ConfigKey(
        "offsets.retention.minutes", INT, "10080", "How long the offsets of an empty group are kept.", at_least(1)
    ),
    ConfigKey(
        "offsets.retention.check.interval.ms",
        LONG,
        "600000",
        "Time between two looks for offsets to forget.",
        at_least(1),
    ),
    ConfigKey("group.min.session.timeout.ms", INT, "6000", "The shortest session time-out a member may ask for."),
    ConfigKey("group.max.session.timeout.ms", INT, "1800000", "The longest session time-out a member may ask for."),
    ConfigKey(
        "group.initial.rebalance.delay.ms",
        INT,
        "3000",
        "How long an empty group waits for more members before its first rebalance.",
    ),
    ConfigKey("group.max.size", INT, "2147483647", "Members a group may have.", at_least(1)),
    ConfigKey(
        "transaction.state.log.min.isr",
        INT,
        "2",
        "In-sync replicas __transaction_state needs; not set: 1 when one broker is alive, else 2.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.state.log.load.buffer.size",
        INT,
        "5242880",
        "Bytes read at a time when the state of transactions is rebuilt.",
        at_least(1),
        inert=True,
    ),
    ConfigKey(
        "transaction.state.log.replication.factor",
        SHORT,
        "3",
        "Replicas of __transaction_state; not set: as many as there are brokers, at most 3.",
        at_least(1),
    ),
    ConfigKey("transaction.state.log.num.partitions", INT, "50", "Partitions of __transaction_state.", at_least(1)),
    ConfigKey(
        "transaction.state.log.segment.bytes", INT, "104857600", "Segment size of __transaction_state.", at_least(1)
    ),
    ConfigKey(
        "transaction.partition.verification.enable",
        BOOLEAN,
        "true",
        "Whether a transactional write is checked against its coordinator.",
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "producer.id.expiration.ms",
        INT,
        "86400000",
        "How long an idle producer's sequence numbers are remembered.",
        at_least(1),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "producer.id.expiration.check.interval.ms",
        INT,
        "600000",
        "Time between two looks for producers to forget.",
        at_least(1),
        internal=True,
    ),
    ConfigKey(
        "transactional.id.expiration.ms",
        INT,
        "604800000",
        "How long an unused transactional id is remembered.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.max.timeout.ms", INT, "900000", "The longest time-out a transaction may ask for.", at_least(1)
    ),
    ConfigKey(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        "10000",
        "Time between two looks for transactions to abort.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        "3600000",
        "Time between two looks for transactional ids to forget.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.two.phase.commit.enable",
        BOOLEAN,
        "false",
        "Whether a producer may keep a transaction open without a time-out.",
    ),
)
