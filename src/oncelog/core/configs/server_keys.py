"""Broker keys about the server: identity, network, requests, topic creation; Apache Kafka 4.3's types and defaults."""

from __future__ import annotations

from typing import Final

from oncelog.core.configs.kinds import ConfigKey, ConfigType, Update
from oncelog.core.configs.limits import at_least

BOOLEAN = ConfigType.BOOLEAN
STRING = ConfigType.STRING
INT = ConfigType.INT
LONG = ConfigType.LONG
LIST = ConfigType.LIST
CLUSTER_WIDE = Update.CLUSTER_WIDE

SERVER_KEYS: Final = (
    ConfigKey("broker.id", INT, "-1", "The older name of node.id."),
    ConfigKey("request.timeout.ms", INT, "30000", "How long a broker waits for what it asks of another."),
    ConfigKey("broker.rack", STRING, None, "Where the broker stands; told to clients that prefer near replicas."),
    ConfigKey("delete.topic.enable", BOOLEAN, "true", "Whether topics may be deleted."),
    ConfigKey(
        "max.incremental.fetch.session.cache.slots", INT, "1000", "Incremental fetch sessions kept.", at_least(0)
    ),
    ConfigKey(
        "fetch.max.bytes",
        INT,
        "57671680",
        "The most one Fetch response carries, whatever the client asks for.",
        at_least(1024),
    ),
    ConfigKey(
        "max.request.partition.size.limit",
        INT,
        "2000",
        "The most partitions one DescribeTopicPartitions response lists.",
        at_least(1),
    ),
    ConfigKey("node.id", INT, "1", "The broker's id in the cluster.", at_least(0)),
    ConfigKey("listeners", LIST, "PLAINTEXT://:9092", "Addresses the broker listens on, as PLAINTEXT://host:port."),
    ConfigKey(
        "advertised.listeners", LIST, None, "Addresses told to clients where they differ from the ones listened on."
    ),
    ConfigKey(
        "socket.send.buffer.bytes",
        INT,
        "102400",
        "Size of a connection's send buffer; -1: the system's choice.",
        inert=True,
    ),
    ConfigKey(
        "socket.receive.buffer.bytes",
        INT,
        "102400",
        "Size of a connection's receive buffer; -1: the system's choice.",
        inert=True,
    ),
    ConfigKey(
        "socket.request.max.bytes",
        INT,
        "104857600",
        "The largest Produce request; other requests are limited by oncelog.request.max.bytes.",
        at_least(1),
    ),
    ConfigKey(
        "socket.listen.backlog.size", INT, "50", "Connections that may wait to be accepted.", at_least(1), inert=True
    ),
    ConfigKey(
        "max.connections.per.ip",
        INT,
        "2147483647",
        "Connections one address may have at a time.",
        at_least(0),
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        "Other limits for some addresses, as address:number, separated by commas.",
        update=CLUSTER_WIDE,
        inert=True,
    ),
    ConfigKey(
        "max.connections", INT, "2147483647", "Connections the broker has at a time.", at_least(0), update=CLUSTER_WIDE
    ),
    ConfigKey("connections.max.idle.ms", LONG, "600000", "Time after which a silent connection is closed."),
    ConfigKey("default.replication.factor", INT, "1", "Replicas of a topic created without a number of its own."),
    ConfigKey(
        "replica.lag.time.max.ms",
        LONG,
        "30000",
        "Time after which a replica that has not caught up leaves the in-sync set.",
        inert=True,
    ),
    ConfigKey(
        "replica.fetch.max.bytes",
        INT,
        "1048576",
        "Bytes of one partition a follower asks for at a time.",
        at_least(0),
        inert=True,
    ),
    ConfigKey("replica.fetch.wait.max.ms", INT, "500", "The longest a follower's fetch waits for data.", inert=True),
    ConfigKey(
        "replica.fetch.backoff.ms", INT, "1000", "Time a follower waits after a failed fetch.", at_least(0), inert=True
    ),
    ConfigKey("replica.fetch.min.bytes", INT, "1", "The least data a follower's fetch waits for.", inert=True),
    ConfigKey(
        "replica.fetch.response.max.bytes",
        INT,
        "10485760",
        "Bytes a follower asks for at a time.",
        at_least(0),
        inert=True,
    ),
    ConfigKey(
        "unclean.leader.election.enable",
        BOOLEAN,
        "false",
        "Whether a replica that is not in sync may lead when no other can, losing records.",
        update=CLUSTER_WIDE,
    ),
    ConfigKey(
        "replica.selector.class",
        STRING,
        None,
        "Chooses the replica a consumer should read from; only the leader is offered.",
        inert=True,
    ),
    ConfigKey("num.partitions", INT, "1", "Partitions of a topic created without a number of its own.", at_least(1)),
    ConfigKey(
        "auto.create.topics.enable", BOOLEAN, "true", "Whether asking for a topic that does not exist creates it."
    ),
    ConfigKey(
        "min.insync.replicas",
        INT,
        "1",
        "Replicas that must have a record before a producer with acks=all is answered.",
        at_least(1),
        update=CLUSTER_WIDE,
    ),
)
