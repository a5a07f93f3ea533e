"""Broker keys that Apache Kafka has no name for."""

from __future__ import annotations

from typing import Final

from oncelog.core.configs.kinds import ConfigKey, ConfigType, Update
from oncelog.core.configs.limits import at_least, host_names, non_empty, one_of

BOOLEAN, INT, LIST, LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LIST, ConfigType.LONG
PASSWORD, STRING = ConfigType.PASSWORD, ConfigType.STRING

OWN_KEYS: Final = (
    ConfigKey(
        "log.sync.policy",
        STRING,
        "commit",
        one_of("commit", "none"),
        documentation=(
            "When a record counts as durable on one replica: commit, after a disk flush that concurrent requests "
            "share; none, once it is in the page cache, as in Apache Kafka."
        ),
    ),
    ConfigKey(
        "oncelog.request.max.bytes",
        INT,
        "1048576",
        at_least(1024),
        documentation="The largest request other than Produce.",
    ),
    ConfigKey(
        "oncelog.legacy.protocol",
        BOOLEAN,
        "false",
        documentation=(
            "Serves clients of Apache Kafka 0.8 to 1.0 too: Produce 0 to 2, Fetch 0 to 3, ListOffsets 0, "
            "OffsetCommit 0 and 1, OffsetFetch 0. Their messages are converted, which costs time for each record."
        ),
    ),
    ConfigKey(
        "oncelog.connection.stalled.ms",
        LONG,
        "30000",
        at_least(1),
        documentation=(
            "Time after which a connection is closed that stopped within a request, or does not take its response."
        ),
    ),
    ConfigKey(
        "oncelog.buffered.max.bytes",
        LONG,
        "268435456",
        at_least(1048576),
        documentation="Bytes of unfinished requests and unsent responses of all connections; reading pauses beyond.",
    ),
    ConfigKey(
        "oncelog.decompressed.max.bytes",
        INT,
        "134217728",
        at_least(1048576),
        documentation="The most one compressed batch may become where the broker has to look inside.",
    ),
    ConfigKey(
        "oncelog.record.validation",
        STRING,
        "records",
        one_of("records", "headers"),
        documentation="records: every record of a producer's batch is validated before it is acknowledged, and the "
        "batch's largest timestamp is computed, as in Apache Kafka. headers: only where the topic or the header of the "
        "batch asks for it (compacted topics, bounds of timestamps, another compression). That costs less, and "
        "believes the producer: one that sends broken records stops consumers at them for good; one that sends a "
        "wrong largest timestamp hides records from searches by time, and retention may delete them too early. For "
        "trusted producers.",
    ),
    ConfigKey(
        "oncelog.group.members.max.bytes",
        INT,
        "20971520",
        at_least(1048576),
        documentation=(
            "The memory of the members of all groups that a broker coordinates: what they say of themselves, and "
            "their assignments. Beyond, others wait until some have gone."
        ),
    ),
    ConfigKey(
        "transaction.orphan.action",
        STRING,
        "report",
        one_of("report", "abort"),
        Update.CLUSTER_WIDE,
        documentation=(
            "What to do about a transaction that is open on a partition while its coordinator does not know of "
            "it: report it, in a metric and a line of the log; or abort it too, when it has been so for "
            "transaction.orphan.grace.ms."
        ),
    ),
    ConfigKey(
        "transaction.orphan.grace.ms",
        LONG,
        "300000",
        at_least(0),
        Update.CLUSTER_WIDE,
        documentation=(
            "How long a transaction has to be found orphaned before transaction.orphan.action=abort aborts it."
        ),
    ),
    ConfigKey(
        "transaction.two.phase.commit.alarm.ms",
        LONG,
        "3600000",
        at_least(1),
        Update.CLUSTER_WIDE,
        documentation=(
            "The age from which a transaction in two-phase commit, which never times out, is reported as overdue."
        ),
    ),
    ConfigKey(
        "oncelog.audit.max.bytes",
        LONG,
        "10485760",
        at_least(1024),
        documentation="The size at which the log of administrative aborts is rotated; ten older files are kept.",
    ),
    ConfigKey(
        "oncelog.transaction.wait.ms",
        INT,
        "5000",
        at_least(0),
        documentation=(
            "How long a request that meets a transaction still being completed waits for that, before it is told "
            "CONCURRENT_TRANSACTIONS (an OffsetFetch: COORDINATOR_LOAD_IN_PROGRESS); 0: it is told so at once."
        ),
    ),
    ConfigKey(
        "oncelog.flight.recorder.max.bytes",
        LONG,
        "0",
        at_least(0),
        documentation=(
            "How much of what happens to the broker is kept in flight-recording.jsonl of the data directory, from "
            "its start on, for oncelog sim --replay; 0: nothing. Requests are in it as they came, with their "
            "data."
        ),
    ),
    ConfigKey(
        "oncelog.require.security",
        BOOLEAN,
        "false",
        documentation=(
            "Refuse to start with a listener, or an HTTP port, that other hosts reach and that lets in anybody; "
            "otherwise that is warned of."
        ),
    ),
    ConfigKey(
        "oncelog.http.ssl.keystore.location",
        STRING,
        None,
        non_empty,
        documentation="Key and certificates, in PEM, of the HTTP port; without them it has no TLS.",
    ),
    ConfigKey(
        "oncelog.http.ssl.key.password",
        PASSWORD,
        None,
        documentation="Password of the private key in oncelog.http.ssl.keystore.location.",
    ),
    ConfigKey(
        "oncelog.http.token",
        PASSWORD,
        None,
        documentation="Bearer token without which the HTTP port answers nothing but /health.",
    ),
    ConfigKey(
        "oncelog.http.names",
        LIST,
        None,
        host_names,
        documentation=(
            "Host names by which /metrics may be asked for, beside IP addresses, localhost, the machine's own name and "
            "those in advertised.listeners: a page of another site can make any other name point here (DNS rebinding)."
        ),
    ),
    ConfigKey(
        "oncelog.tls.handshake.timeout.ms",
        INT,
        "10000",
        at_least(1),
        documentation="Time after which a connection is closed whose TLS handshake is not done.",
    ),
    ConfigKey(
        "oncelog.tls.handshakes.max",
        INT,
        "1000",
        at_least(1),
        documentation="TLS handshakes under way at a time; the one that has taken the longest makes room for others.",
    ),
    ConfigKey(
        "oncelog.initial.users",
        PASSWORD,
        None,
        documentation=(
            "Users with SCRAM credentials that a new cluster begins with: NAME=MECHANISM:CREDENTIAL, with semicolons "
            "between them, as oncelog security init writes it. A cluster that is there already is not changed by it."
        ),
    ),
    ConfigKey(
        "oncelog.tree.path",
        STRING,
        None,
        non_empty,
        documentation=(
            "The file of the coordination tree, which the brokers of a cluster on one host share; it must not be on a "
            "network file system. Where it is not set: coordination.db in the data directory."
        ),
    ),
)
