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
        at_least(1),
        documentation="The longest a commit of offsets waits until it is durable.",
    ),
    ConfigKey(
        "offsets.load.buffer.size",
        INT,
        "5242880",
        at_least(1),
        inert=True,
    ),
    ConfigKey(
        "offsets.topic.replication.factor",
        SHORT,
        "3",
        at_least(1),
        documentation="Replicas of __consumer_offsets; not set: as many as there are brokers, at most 3.",
    ),
    ConfigKey("offsets.topic.num.partitions", INT, "50", at_least(1)),
    ConfigKey("offsets.topic.segment.bytes", INT, "104857600", at_least(1)),
    ConfigKey(
        "offsets.topic.compression.codec",
        INT,
        "0",
        inert=True,
    ),
    ConfigKey("offset.metadata.max.bytes", INT, "4096"),
    ConfigKey("offsets.retention.minutes", INT, "10080", at_least(1)),
    ConfigKey(
        "offsets.retention.check.interval.ms",
        LONG,
        "600000",
        at_least(1),
    ),
    ConfigKey("group.min.session.timeout.ms", INT, "6000"),
    ConfigKey("group.max.session.timeout.ms", INT, "1800000"),
    ConfigKey(
        "group.initial.rebalance.delay.ms",
        INT,
        "3000",
    ),
    ConfigKey("group.max.size", INT, "2147483647", at_least(1)),
    ConfigKey(
        "transaction.state.log.min.isr",
        INT,
        "2",
        at_least(1),
        documentation="In-sync replicas __transaction_state needs; not set: 1 when one broker is alive, else 2.",
    ),
    ConfigKey(
        "transaction.state.log.load.buffer.size",
        INT,
        "5242880",
        at_least(1),
        inert=True,
    ),
    ConfigKey(
        "transaction.state.log.replication.factor",
        SHORT,
        "3",
        at_least(1),
        documentation="Replicas of __transaction_state; not set: as many as there are brokers, at most 3.",
    ),
    ConfigKey("transaction.state.log.num.partitions", INT, "50", at_least(1)),
    ConfigKey("transaction.state.log.segment.bytes", INT, "104857600", at_least(1)),
    ConfigKey(
        "transaction.partition.verification.enable",
        BOOLEAN,
        "true",
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "producer.id.expiration.ms",
        INT,
        "86400000",
        at_least(1),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "producer.id.expiration.check.interval.ms",
        INT,
        "600000",
        at_least(1),
        internal=True,
        documentation="Time between two looks for producers to forget.",
    ),
    ConfigKey(
        "transactional.id.expiration.ms",
        INT,
        "604800000",
        at_least(1),
    ),
    ConfigKey("transaction.max.timeout.ms", INT, "900000", at_least(1)),
    ConfigKey(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        "10000",
        at_least(1),
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        "3600000",
        at_least(1),
    ),
    ConfigKey(
        "transaction.two.phase.commit.enable",
        BOOLEAN,
        "false",
    ),
)
