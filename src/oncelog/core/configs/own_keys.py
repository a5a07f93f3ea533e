"""Broker keys that the ``ConfigDef`` of Apache Kafka 4.3 does not have.

They are the keys of its authorizer, those of ZooKeeper (names and defaults of Apache Kafka 3.9, the last release with
them), and our own. The ZooKeeper login is our own key: Apache Kafka reads it from a file named by a JVM property.
"""

from __future__ import annotations

from typing import Final

from oncelog.core.configs.kinds import ConfigError, ConfigKey, ConfigType, Update, Value
from oncelog.core.configs.limits import at_least, host_names, non_empty, one_of

BOOLEAN, INT, LIST, LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LIST, ConfigType.LONG
PASSWORD, STRING = ConfigType.PASSWORD, ConfigType.STRING

_BY_EXTENSION: Final = "PEM, PKCS12 or JKS; by default determined by the file's extension."


def _principals(key: str, value: Value) -> None:
    """Check principals such as ``User:alice``, separated by semicolons."""
    for principal in super_users_of(str(value or "")):
        if ":" not in principal:
            raise ConfigError.of_value(
                key, value, f"expected a string in format principalType:principalName but got {principal}"
            )


_SHORTEST_FREEZE_MS: Final = 500


def _freeze_timeout(key: str, value: Value) -> None:
    # In less time than two probes of a silent broker take, brokers cannot be sure.
    if value != 0 and int(str(value)) < _SHORTEST_FREEZE_MS:
        raise ConfigError.of_value(key, value, f"must be 0 or at least {_SHORTEST_FREEZE_MS}")


def super_users_of(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(";") if part.strip())


def _renamed(old_name: str, key: ConfigKey, documentation: str) -> tuple[ConfigKey, ConfigKey]:
    """A key and its deprecated name, which still sets it and is listed only if it is set."""
    old = key._replace(name=old_name, internal=True, replaced_by=key.name)
    return key._replace(synonym=old_name).documented(documentation), old.documented(
        f"Deprecated, removed in 0.2: use {key.name}."
    )


OWN_KEYS: Final = (
    ConfigKey("super.users", STRING, "", _principals, internal=True, hidden=True).documented(
        "Principals that may do everything, separated by semicolons: User:admin;User:broker. The brokers' "
        "own principal must be one of them, or be allowed ClusterAction on the cluster."
    ),
    ConfigKey("allow.everyone.if.no.acl.found", BOOLEAN, "false", internal=True, hidden=True).documented(
        "true: everybody may use a resource without ACLs. A resource with ACLs is closed to principals that none of "
        "them allows."
    ),
    ConfigKey("log.sync.policy", STRING, "commit", one_of("commit", "none")).documented(
        "When a record counts as durable on one replica: commit, after a disk flush that concurrent requests share; "
        "none, once it is in the page cache, as in Apache Kafka."
    ),
    ConfigKey("oncelog.request.max.bytes", INT, "1048576", at_least(1024)).documented(
        "The largest request other than Produce."
    ),
    ConfigKey("oncelog.legacy.protocol", BOOLEAN, "false").documented(
        "Also serve clients of Apache Kafka 0.8 to 1.0: Produce 0 to 2, Fetch 0 to 3, ListOffsets 0, OffsetCommit 0 "
        "and 1, OffsetFetch 0. Their messages are converted, which costs time for each record."
    ),
    ConfigKey("oncelog.connection.stalled.ms", LONG, "30000", at_least(1)).documented(
        "Time after which a connection is closed if it stalls within a request or does not read its response."
    ),
    ConfigKey("oncelog.buffered.max.bytes", LONG, "268435456", at_least(1048576)).documented(
        "Bytes of unfinished requests and unsent responses of all connections; reading pauses beyond."
    ),
    ConfigKey("oncelog.decompressed.max.bytes", INT, "134217728", at_least(1048576)).documented(
        "Maximum decompressed size of a batch that the broker has to read."
    ),
    ConfigKey("oncelog.record.validation", STRING, "records", one_of("records", "headers")).documented(
        "records: every record of a producer's batch is validated before it is acknowledged, and the batch's largest "
        "timestamp is computed, as in Apache Kafka. headers: only if the topic or the batch header requires "
        "it (compacted topics, timestamp bounds, recompression). This is cheaper but trusts producers: broken records "
        "stop consumers for good, and a wrong largest timestamp hides records from searches by time and may make "
        "retention delete them too early. For trusted producers only."
    ),
    ConfigKey("oncelog.group.members.max.bytes", INT, "67108864", at_least(1048576)).documented(
        "Maximum memory of the members of all groups that the broker coordinates: their metadata and assignments. "
        "Beyond it, new members are rejected until others leave."
    ),
    ConfigKey("oncelog.group.share.partitions.max", INT, "250000", at_least(1)).documented(
        "Maximum partitions with share state of all share groups that the broker coordinates, those of groups without "
        "members too, which do not expire. Beyond it, no more partitions get share state until share groups or their "
        "offsets are deleted: new members that need it are rejected, and those of before do without."
    ),
    *_renamed(
        "transaction.orphan.action",
        ConfigKey("transaction.hanging.action", STRING, "report", one_of("report", "abort"), Update.CLUSTER_WIDE),
        "The action on a hanging transaction: one that is open on a partition but unknown to its coordinator. "
        "report: count it in a metric and log it. abort: also abort it after transaction.hanging.grace.ms.",
    ),
    *_renamed(
        "transaction.orphan.grace.ms",
        ConfigKey("transaction.hanging.grace.ms", LONG, "300000", at_least(0), Update.CLUSTER_WIDE),
        "How long a transaction must hang before transaction.hanging.action=abort aborts it.",
    ),
    ConfigKey("transaction.two.phase.commit.alarm.ms", LONG, "3600000", at_least(1), Update.CLUSTER_WIDE).documented(
        "The age from which a transaction in two-phase commit, which never times out, is reported as overdue."
    ),
    ConfigKey("oncelog.audit.max.bytes", LONG, "10485760", at_least(1024)).documented(
        "The size at which the log of administrative aborts is rotated; ten older files are kept."
    ),
    ConfigKey("oncelog.transaction.wait.ms", INT, "5000", at_least(0)).documented(
        "How long a request waits for a transaction that is being completed, before it fails with "
        "CONCURRENT_TRANSACTIONS (OffsetFetch: COORDINATOR_LOAD_IN_PROGRESS); 0: it fails at once."
    ),
    ConfigKey("oncelog.transaction.late.requests.refuse", BOOLEAN, "false").documented(
        "true: refuse EndTxn and AddPartitionsToTxn of Transactions V1 that arrive over an older connection than the "
        "producer's last EndTxn: they belong to an earlier transaction. false: as Apache Kafka, which lets them decide "
        "the next one. Not for processes that share a producer's identity."
    ),
    ConfigKey("oncelog.flight.recorder.max.bytes", LONG, "0", at_least(0)).documented(
        "Maximum size of flight-recording.jsonl in the data directory, a recording of the broker's inputs from its "
        "start, for oncelog sim --replay; 0: off. It contains requests with their data."
    ),
    ConfigKey("oncelog.require.security", BOOLEAN, "false").documented(
        "true: refuse to start with a listener or an HTTP port that other hosts can reach without authentication. "
        "false: log a warning instead."
    ),
    ConfigKey("oncelog.http.ssl.keystore.location", STRING, None, non_empty).documented(
        "Key and certificates (PEM) of the HTTP port; without them it has no TLS."
    ),
    ConfigKey("oncelog.http.ssl.key.password", PASSWORD, None).documented(
        "Password of the private key in oncelog.http.ssl.keystore.location."
    ),
    ConfigKey("oncelog.http.token", PASSWORD, None).documented(
        "Bearer token required by the HTTP port for everything but /health."
    ),
    ConfigKey("oncelog.http.names", LIST, None, host_names).documented(
        "Host names accepted for /metrics, besides IP addresses, localhost, the machine's own name and those in "
        "advertised.listeners. Other names are rejected because of DNS rebinding."
    ),
    ConfigKey("oncelog.tls.handshake.timeout.ms", INT, "10000", at_least(1)).documented(
        "Time after which a connection with an unfinished TLS handshake is closed."
    ),
    ConfigKey("oncelog.tls.handshakes.max", INT, "1000", at_least(1)).documented(
        "Maximum number of concurrent TLS handshakes; the oldest one is dropped for a new one."
    ),
    ConfigKey("oncelog.initial.users", PASSWORD, None).documented(
        "Users with SCRAM credentials of a new cluster: NAME=MECHANISM:CREDENTIAL, separated by semicolons, as "
        "oncelog security init writes them. It has no effect on an existing cluster."
    ),
    ConfigKey("oncelog.tree.path", STRING, None, non_empty).documented(
        "The file of the coordination tree, shared by the brokers of a cluster on one host; it must not be on a "
        "network file system. The default is coordination.db in the data directory."
    ),
    ConfigKey("zookeeper.connect", STRING, None, non_empty).documented(
        "ZooKeeper servers with the coordination tree, for brokers on several hosts: host:port,host:port/path. The "
        "optional path is created if it does not exist. Requires kazoo: pip install 'oncelog[cluster]'."
    ),
    ConfigKey("zookeeper.connection.timeout.ms", INT, None).documented(
        "How long to wait for a connection to ZooKeeper; the default is zookeeper.session.timeout.ms."
    ),
    ConfigKey("zookeeper.session.timeout.ms", INT, "18000", at_least(1000)).documented(
        "The time without contact after which the coordination tree, of either kind, ends a broker's session. The end "
        "of a process on the tree's own host is noticed at once."
    ),
    ConfigKey("oncelog.broker.freeze.timeout.ms", INT, "1500", _freeze_timeout).documented(
        "Silence of a broker whose port accepts connections after which two others end its registration, before its "
        "session: its process is frozen. Brokers that are late themselves allow as much more. A broker without a "
        "second observer has twice as long. 0: only the session ends it."
    ),
    ConfigKey("zookeeper.set.acl", BOOLEAN, "false").documented(
        "true: create nodes in ZooKeeper with an ACL, so that only brokers, which log in or have a certificate, can "
        "change them or read credentials, broker configs and the journal."
    ),
    ConfigKey("zookeeper.ssl.client.enable", BOOLEAN, "false").documented(
        "Connect to ZooKeeper with TLS, on its secureClientPort."
    ),
    ConfigKey("zookeeper.clientCnxnSocket", STRING, None).documented(
        "Java's connection class; with TLS it must be unset or org.apache.zookeeper.ClientCnxnSocketNetty."
    ),
    ConfigKey("zookeeper.ssl.keystore.location", STRING, None).documented(
        "Key and certificates to present to ZooKeeper."
    ),
    ConfigKey("zookeeper.ssl.keystore.password", PASSWORD, None).documented(
        "Password of zookeeper.ssl.keystore.location, or of its key if it is PEM."
    ),
    ConfigKey("zookeeper.ssl.keystore.type", STRING, None).documented(_BY_EXTENSION),
    ConfigKey("zookeeper.ssl.truststore.location", STRING, None).documented(
        "Certificates that sign ZooKeeper's; the default is the system's."
    ),
    ConfigKey("zookeeper.ssl.truststore.password", PASSWORD, None).documented(
        "Password of zookeeper.ssl.truststore.location."
    ),
    ConfigKey("zookeeper.ssl.truststore.type", STRING, None).documented(_BY_EXTENSION),
    ConfigKey("zookeeper.ssl.protocol", STRING, "TLSv1.2").documented(
        "The TLS version if zookeeper.ssl.enabled.protocols is not set."
    ),
    ConfigKey("zookeeper.ssl.enabled.protocols", LIST, None).documented("TLS versions: TLSv1.2, TLSv1.3."),
    ConfigKey("zookeeper.ssl.cipher.suites", LIST, None).documented(
        "Cipher suites by Java's or OpenSSL's names; the default is OpenSSL's."
    ),
    ConfigKey("zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS").documented(
        "HTTPS: ZooKeeper's certificate must name the host in zookeeper.connect. Empty: it need not."
    ),
    ConfigKey("zookeeper.ssl.crl.enable", BOOLEAN, "false").documented(
        "Certificate revocation lists; not supported, so true is rejected."
    ),
    ConfigKey("zookeeper.ssl.ocsp.enable", BOOLEAN, "false").documented(
        "Certificate status by OCSP; not supported, so true is rejected."
    ),
    ConfigKey("oncelog.zookeeper.sasl.jaas.config", PASSWORD, None).documented(
        "The SASL login (DIGEST-MD5) to ZooKeeper, as in the Client section of a JAAS file: "
        'org.apache.zookeeper.server.auth.DigestLoginModule required username="…" password="…";'
    ),
    ConfigKey("oncelog.zookeeper.auth.digest", PASSWORD, None).documented(
        "USER:PASSWORD for ZooKeeper's digest scheme (addauth), which needs no server configuration."
    ),
)
