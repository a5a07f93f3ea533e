"""Broker keys that ``ConfigDef`` of Apache Kafka 4.3 does not have.

Those of its authorizer, those of ZooKeeper (names and defaults are Apache Kafka 3.9's, the last release that knew
them), and our own. The login at ZooKeeper is set by a key of ours: in Apache Kafka it is in a file that a property of
the JVM names.
"""

from __future__ import annotations

from typing import Final

from oncelog.core.configs.kinds import ConfigError, ConfigKey, ConfigType, Update, Value
from oncelog.core.configs.limits import at_least, host_names, non_empty, one_of

BOOLEAN, INT, LIST, LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LIST, ConfigType.LONG
PASSWORD, STRING = ConfigType.PASSWORD, ConfigType.STRING

_BY_EXTENSION: Final = "PEM, PKCS12 or JKS; where it is not set, by the file's extension."


def _principals(key: str, value: Value) -> None:
    """Principals such as ``User:alice``, with a semicolon between them."""
    for principal in super_users_of(str(value or "")):
        if ":" not in principal:
            raise ConfigError.of_value(
                key, value, f"expected a string in format principalType:principalName but got {principal}"
            )


def super_users_of(text: str) -> frozenset[str]:
    """The principals that a text names."""
    return frozenset(part.strip() for part in text.split(";") if part.strip())


def _renamed(old_name: str, key: ConfigKey, documentation: str) -> tuple[ConfigKey, ConfigKey]:
    """A key and its old name, which still sets it and is listed only where it is set."""
    old = key._replace(name=old_name, internal=True, replaced_by=key.name)
    return key._replace(synonym=old_name).documented(documentation), old.documented(f"Deprecated: use {key.name}.")


OWN_KEYS: Final = (
    ConfigKey("super.users", STRING, "", _principals, internal=True, hidden=True).documented(
        "Principals that may do everything, with semicolons between them: User:admin;User:broker. The principal of the "
        "brokers themselves is one of them, or has the operation ClusterAction on the cluster."
    ),
    ConfigKey("allow.everyone.if.no.acl.found", BOOLEAN, "false", internal=True, hidden=True).documented(
        "True: a resource that no ACL names may be used by everybody. A resource that any ACL names is closed to those "
        "whom none allows."
    ),
    ConfigKey("log.sync.policy", STRING, "commit", one_of("commit", "none")).documented(
        "When a record counts as durable on one replica: commit, after a disk flush that concurrent requests share; "
        "none, once it is in the page cache, as in Apache Kafka."
    ),
    ConfigKey("oncelog.request.max.bytes", INT, "1048576", at_least(1024)).documented(
        "The largest request other than Produce."
    ),
    ConfigKey("oncelog.legacy.protocol", BOOLEAN, "false").documented(
        "Serves clients of Apache Kafka 0.8 to 1.0 too: Produce 0 to 2, Fetch 0 to 3, ListOffsets 0, OffsetCommit 0 "
        "and 1, OffsetFetch 0. Their messages are converted, which costs time for each record."
    ),
    ConfigKey("oncelog.connection.stalled.ms", LONG, "30000", at_least(1)).documented(
        "Time after which a connection is closed that stopped within a request, or does not take its response."
    ),
    ConfigKey("oncelog.buffered.max.bytes", LONG, "268435456", at_least(1048576)).documented(
        "Bytes of unfinished requests and unsent responses of all connections; reading pauses beyond."
    ),
    ConfigKey("oncelog.decompressed.max.bytes", INT, "134217728", at_least(1048576)).documented(
        "The most one compressed batch may become where the broker has to look inside."
    ),
    ConfigKey("oncelog.record.validation", STRING, "records", one_of("records", "headers")).documented(
        "records: every record of a producer's batch is validated before it is acknowledged, and the batch's largest "
        "timestamp is computed, as in Apache Kafka. headers: only where the topic or the header of the batch asks for "
        "it (compacted topics, bounds of timestamps, another compression). That costs less, and believes the producer: "
        "one that sends broken records stops consumers at them for good; one that sends a wrong largest timestamp "
        "hides records from searches by time, and retention may delete them too early. For trusted producers."
    ),
    ConfigKey("oncelog.group.members.max.bytes", INT, "20971520", at_least(1048576)).documented(
        "The memory of the members of all groups that a broker coordinates: what they say of themselves, and their "
        "assignments. Beyond, others wait until some have gone."
    ),
    *_renamed(
        "transaction.orphan.action",
        ConfigKey("transaction.hanging.action", STRING, "report", one_of("report", "abort"), Update.CLUSTER_WIDE),
        "What to do about a hanging transaction: one that is open on a partition but its coordinator does not know "
        "it. report: count it in a metric and log it. abort: also abort it after transaction.hanging.grace.ms.",
    ),
    *_renamed(
        "transaction.orphan.grace.ms",
        ConfigKey("transaction.hanging.grace.ms", LONG, "300000", at_least(0), Update.CLUSTER_WIDE),
        "How long a transaction has been hanging before transaction.hanging.action=abort aborts it.",
    ),
    ConfigKey("transaction.two.phase.commit.alarm.ms", LONG, "3600000", at_least(1), Update.CLUSTER_WIDE).documented(
        "The age from which a transaction in two-phase commit, which never times out, is reported as overdue."
    ),
    ConfigKey("oncelog.audit.max.bytes", LONG, "10485760", at_least(1024)).documented(
        "The size at which the log of administrative aborts is rotated; ten older files are kept."
    ),
    ConfigKey("oncelog.transaction.wait.ms", INT, "5000", at_least(0)).documented(
        "How long a request that meets a transaction still being completed waits for that, before it is told "
        "CONCURRENT_TRANSACTIONS (an OffsetFetch: COORDINATOR_LOAD_IN_PROGRESS); 0: it is told so at once."
    ),
    ConfigKey("oncelog.flight.recorder.max.bytes", LONG, "0", at_least(0)).documented(
        "How much of what happens to the broker is kept in flight-recording.jsonl of the data directory, from its "
        "start on, for oncelog sim --replay; 0: nothing. Requests are in it as they came, with their data."
    ),
    ConfigKey("oncelog.require.security", BOOLEAN, "false").documented(
        "Refuse to start with a listener, or an HTTP port, that other hosts reach and that lets in anybody; otherwise "
        "that is warned of."
    ),
    ConfigKey("oncelog.http.ssl.keystore.location", STRING, None, non_empty).documented(
        "Key and certificates, in PEM, of the HTTP port; without them it has no TLS."
    ),
    ConfigKey("oncelog.http.ssl.key.password", PASSWORD, None).documented(
        "Password of the private key in oncelog.http.ssl.keystore.location."
    ),
    ConfigKey("oncelog.http.token", PASSWORD, None).documented(
        "Bearer token without which the HTTP port answers nothing but /health."
    ),
    ConfigKey("oncelog.http.names", LIST, None, host_names).documented(
        "Host names by which /metrics may be asked for, beside IP addresses, localhost, the machine's own name and "
        "those in advertised.listeners: a page of another site can make any other name point here (DNS rebinding)."
    ),
    ConfigKey("oncelog.tls.handshake.timeout.ms", INT, "10000", at_least(1)).documented(
        "Time after which a connection is closed whose TLS handshake is not done."
    ),
    ConfigKey("oncelog.tls.handshakes.max", INT, "1000", at_least(1)).documented(
        "TLS handshakes under way at a time; the one that has taken the longest makes room for others."
    ),
    ConfigKey("oncelog.initial.users", PASSWORD, None).documented(
        "Users with SCRAM credentials that a new cluster begins with: NAME=MECHANISM:CREDENTIAL, with semicolons "
        "between them, as oncelog security init writes it. A cluster that is there already is not changed by it."
    ),
    ConfigKey("oncelog.tree.path", STRING, None, non_empty).documented(
        "The file of the coordination tree, which the brokers of a cluster on one host share; it must not be on a "
        "network file system. Where it is not set: coordination.db in the data directory."
    ),
    ConfigKey("zookeeper.connect", STRING, None, non_empty).documented(
        "ZooKeeper servers that hold the coordination tree, of brokers on several hosts: host:port,host:port/path. The "
        "path, if any, is created when it does not exist. It needs kazoo: pip install oncelog[cluster]."
    ),
    ConfigKey("zookeeper.connection.timeout.ms", INT, None).documented(
        "How long to wait for a connection to ZooKeeper; zookeeper.session.timeout.ms where it is not set."
    ),
    ConfigKey("zookeeper.session.timeout.ms", INT, "18000", at_least(1000)).documented(
        "The time after which the coordination tree, whichever it is, ends the session of a broker that it does not "
        "hear of. The end of a process on the tree's own host is noticed at once."
    ),
    ConfigKey("zookeeper.set.acl", BOOLEAN, "false").documented(
        "Give each node that is created in ZooKeeper an ACL: only brokers, which log in or have a certificate, change "
        "it, and only they read credentials, configs of brokers and the journal."
    ),
    ConfigKey("zookeeper.ssl.client.enable", BOOLEAN, "false").documented(
        "Connect to ZooKeeper with TLS, on its secureClientPort."
    ),
    ConfigKey("zookeeper.clientCnxnSocket", STRING, None).documented(
        "Java's class of connections to ZooKeeper; with TLS it has to be org.apache.zookeeper.ClientCnxnSocketNetty, "
        "if it is set."
    ),
    ConfigKey("zookeeper.ssl.keystore.location", STRING, None).documented(
        "Key and certificates that ZooKeeper is shown."
    ),
    ConfigKey("zookeeper.ssl.keystore.password", PASSWORD, None).documented(
        "Password of zookeeper.ssl.keystore.location; of the key, where that is PEM."
    ),
    ConfigKey("zookeeper.ssl.keystore.type", STRING, None).documented(_BY_EXTENSION),
    ConfigKey("zookeeper.ssl.truststore.location", STRING, None).documented(
        "Certificates to trust ZooKeeper's by; where it is not set, those of the system."
    ),
    ConfigKey("zookeeper.ssl.truststore.password", PASSWORD, None).documented(
        "Password of zookeeper.ssl.truststore.location."
    ),
    ConfigKey("zookeeper.ssl.truststore.type", STRING, None).documented(_BY_EXTENSION),
    ConfigKey("zookeeper.ssl.protocol", STRING, "TLSv1.2").documented(
        "The version of TLS where zookeeper.ssl.enabled.protocols is not set."
    ),
    ConfigKey("zookeeper.ssl.enabled.protocols", LIST, None).documented("Versions of TLS: TLSv1.2, TLSv1.3."),
    ConfigKey("zookeeper.ssl.cipher.suites", LIST, None).documented(
        "Cipher suites by Java's names or OpenSSL's; not set: OpenSSL's choice."
    ),
    ConfigKey("zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS").documented(
        "HTTPS: ZooKeeper's certificate has to name the host in zookeeper.connect. Empty: it need not."
    ),
    ConfigKey("zookeeper.ssl.crl.enable", BOOLEAN, "false").documented(
        "Lists of revoked certificates; true is refused, they are not read."
    ),
    ConfigKey("zookeeper.ssl.ocsp.enable", BOOLEAN, "false").documented(
        "Asking for revoked certificates; true is refused."
    ),
    ConfigKey("oncelog.zookeeper.sasl.jaas.config", PASSWORD, None).documented(
        "The login at ZooKeeper by SASL (DIGEST-MD5), as the Client section of a JAAS file has it: "
        'org.apache.zookeeper.server.auth.DigestLoginModule required username="…" password="…";'
    ),
    ConfigKey("oncelog.zookeeper.auth.digest", PASSWORD, None).documented(
        "USER:PASSWORD of ZooKeeper's own digest scheme (addauth), which needs nothing on the server."
    ),
)
