"""Broker keys about the server: identity, network, requests, topic creation; Apache Kafka 4.3's types and defaults."""

from __future__ import annotations

from typing import Final

from oncelog.core.configs.kinds import ConfigKey, ConfigType, Update
from oncelog.core.configs.limits import at_least, limits_by_host, named, one_of

RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""``replica.selector.class``: consumers read from a replica in their rack (``core.replicas.selector``)."""
LEADER_SELECTOR: Final = "org.apache.kafka.common.replica.LeaderSelector"
"""``replica.selector.class``: as where it is not set."""

BOOLEAN = ConfigType.BOOLEAN
STRING = ConfigType.STRING
INT = ConfigType.INT
LONG = ConfigType.LONG
LIST = ConfigType.LIST
CLUSTER_WIDE = Update.CLUSTER_WIDE

SERVER_KEYS: Final = (
    ConfigKey("broker.id", INT, "-1"),
    ConfigKey(
        "request.timeout.ms", INT, "30000", documentation=("How long a broker waits for what it asks of another.")
    ),
    ConfigKey("socket.connection.setup.timeout.ms", LONG, "10000"),
    ConfigKey("socket.connection.setup.timeout.max.ms", LONG, "30000"),
    ConfigKey("replica.socket.timeout.ms", INT, "30000"),
    ConfigKey("add.partitions.to.txn.retry.backoff.max.ms", INT, "100", at_least(0)),
    ConfigKey(
        "broker.rack",
        STRING,
        None,
        documentation=("Where the broker stands; told to clients that prefer near replicas."),
    ),
    ConfigKey("delete.topic.enable", BOOLEAN, "true"),
    ConfigKey(
        "max.incremental.fetch.session.cache.slots",
        INT,
        "1000",
        at_least(0),
        documentation="Incremental fetch sessions kept.",
    ),
    ConfigKey(
        "fetch.max.bytes",
        INT,
        "57671680",
        at_least(1024),
    ),
    ConfigKey(
        "max.request.partition.size.limit",
        INT,
        "2000",
        at_least(1),
    ),
    ConfigKey("node.id", INT, "1", at_least(0), documentation="The broker's id in the cluster."),
    ConfigKey(
        "listeners",
        LIST,
        "PLAINTEXT://:9092",
        named,
        documentation="Listeners and their addresses: NAME://host:port, separated by commas.",
    ),
    ConfigKey(
        "advertised.listeners",
        LIST,
        None,
        named,
        documentation="Addresses told to clients where they differ from the ones listened on.",
    ),
    ConfigKey(
        "socket.send.buffer.bytes",
        INT,
        "102400",
        inert=True,
    ),
    ConfigKey(
        "socket.receive.buffer.bytes",
        INT,
        "102400",
        inert=True,
    ),
    ConfigKey(
        "socket.request.max.bytes",
        INT,
        "104857600",
        at_least(1),
        documentation="The largest Produce request; other requests are limited by oncelog.request.max.bytes.",
    ),
    ConfigKey(
        "socket.listen.backlog.size",
        INT,
        "50",
        at_least(1),
        documentation="Connections that wait to be accepted, on each listener; 1024 where it is not set.",
    ),
    ConfigKey(
        "max.connections.per.ip",
        INT,
        "2147483647",
        at_least(0),
        update=CLUSTER_WIDE,
        documentation="Connections one address may have at a time.",
    ),
    ConfigKey(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        limits_by_host,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "max.connections",
        INT,
        "2147483647",
        at_least(0),
        update=CLUSTER_WIDE,
        documentation="Connections the broker has at a time.",
    ),
    ConfigKey("connections.max.idle.ms", LONG, "600000"),
    ConfigKey("default.replication.factor", INT, "1"),
    ConfigKey("controlled.shutdown.enable", BOOLEAN, "true"),
    ConfigKey("auto.leader.rebalance.enable", BOOLEAN, "true"),
    ConfigKey("leader.imbalance.check.interval.seconds", LONG, "300", at_least(1)),
    ConfigKey(
        "replica.lag.time.max.ms",
        LONG,
        "30000",
    ),
    ConfigKey(
        "replica.fetch.max.bytes",
        INT,
        "1048576",
        at_least(0),
    ),
    ConfigKey("replica.fetch.wait.max.ms", INT, "500"),
    ConfigKey("replica.fetch.backoff.ms", INT, "1000", at_least(0)),
    ConfigKey("replica.fetch.min.bytes", INT, "1"),
    ConfigKey(
        "replica.fetch.response.max.bytes",
        INT,
        "10485760",
        at_least(0),
    ),
    ConfigKey(
        "unclean.leader.election.enable",
        BOOLEAN,
        "false",
        update=CLUSTER_WIDE,
        documentation="Whether a replica that is not in sync may lead when no other can, losing records.",
    ),
    ConfigKey(
        "replica.selector.class",
        STRING,
        None,
        one_of(RACK_AWARE_SELECTOR, LEADER_SELECTOR),
    ),
    ConfigKey("num.partitions", INT, "1", at_least(1)),
    ConfigKey("auto.create.topics.enable", BOOLEAN, "true"),
    ConfigKey(
        "min.insync.replicas",
        INT,
        "1",
        at_least(1),
        update=CLUSTER_WIDE,
    ),
)
