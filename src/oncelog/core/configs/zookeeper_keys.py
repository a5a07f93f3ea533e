"""Broker keys about the coordination tree in ZooKeeper: where it is, TLS, who the broker is there, who else may read.

The names and defaults are those of Apache Kafka 3.9, the last release that knew them. A login is set by a key of ours:
there it is in a file that a property of the JVM names.
"""

from __future__ import annotations

from typing import Final

from oncelog.core.configs.kinds import ConfigKey, ConfigType
from oncelog.core.configs.limits import at_least, non_empty

BOOLEAN, INT, LIST = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LIST
PASSWORD, STRING = ConfigType.PASSWORD, ConfigType.STRING

_BY_EXTENSION: Final = "PEM, PKCS12 or JKS; where it is not set, by the file's extension."


def _key(name: str, kind: ConfigType, default: str | None, documentation: str) -> ConfigKey:
    return ConfigKey(name, kind, default, documentation=documentation)


ZOOKEEPER_KEYS: Final = (
    ConfigKey(
        "zookeeper.connect",
        STRING,
        None,
        non_empty,
        documentation=(
            "ZooKeeper servers that hold the coordination tree, of brokers on several hosts: host:port,host:port/path. "
            "The path, if any, is created when it does not exist. It needs kazoo: pip install oncelog[cluster]."
        ),
    ),
    ConfigKey(
        "zookeeper.connection.timeout.ms",
        INT,
        None,
        documentation=(
            "How long to wait for a connection to ZooKeeper; zookeeper.session.timeout.ms where it is not set."
        ),
    ),
    ConfigKey(
        "zookeeper.session.timeout.ms",
        INT,
        "18000",
        at_least(1000),
        documentation=(
            "The time after which the coordination tree, whichever it is, ends the session of a broker that it does "
            "not hear of. The end of a process on the tree's own host is noticed at once."
        ),
    ),
    _key(
        "zookeeper.set.acl",
        BOOLEAN,
        "false",
        "Give each node that is created in ZooKeeper an ACL: only brokers, which log in or have a certificate, change "
        "it, and only they read credentials, configs of brokers and the journal.",
    ),
    _key("zookeeper.ssl.client.enable", BOOLEAN, "false", "Connect to ZooKeeper with TLS, on its secureClientPort."),
    _key(
        "zookeeper.clientCnxnSocket",
        STRING,
        None,
        "Java's class of connections to ZooKeeper; with TLS it has to be org.apache.zookeeper.ClientCnxnSocketNetty, "
        "if it is set.",
    ),
    _key("zookeeper.ssl.keystore.location", STRING, None, "Key and certificates that ZooKeeper is shown."),
    _key(
        "zookeeper.ssl.keystore.password",
        PASSWORD,
        None,
        "Password of zookeeper.ssl.keystore.location; of the key, where that is PEM.",
    ),
    _key("zookeeper.ssl.keystore.type", STRING, None, _BY_EXTENSION),
    _key(
        "zookeeper.ssl.truststore.location",
        STRING,
        None,
        "Certificates to trust ZooKeeper's by; where it is not set, those of the system.",
    ),
    _key("zookeeper.ssl.truststore.password", PASSWORD, None, "Password of zookeeper.ssl.truststore.location."),
    _key("zookeeper.ssl.truststore.type", STRING, None, _BY_EXTENSION),
    _key(
        "zookeeper.ssl.protocol",
        STRING,
        "TLSv1.2",
        "The version of TLS where zookeeper.ssl.enabled.protocols is not set.",
    ),
    _key("zookeeper.ssl.enabled.protocols", LIST, None, "Versions of TLS: TLSv1.2, TLSv1.3."),
    _key(
        "zookeeper.ssl.cipher.suites",
        LIST,
        None,
        "Cipher suites by Java's names or OpenSSL's; not set: OpenSSL's choice.",
    ),
    _key(
        "zookeeper.ssl.endpoint.identification.algorithm",
        STRING,
        "HTTPS",
        "HTTPS: ZooKeeper's certificate has to name the host in zookeeper.connect. Empty: it need not.",
    ),
    _key(
        "zookeeper.ssl.crl.enable",
        BOOLEAN,
        "false",
        "Lists of revoked certificates; true is refused, they are not read.",
    ),
    _key("zookeeper.ssl.ocsp.enable", BOOLEAN, "false", "Asking for revoked certificates; true is refused."),
    _key(
        "oncelog.zookeeper.sasl.jaas.config",
        PASSWORD,
        None,
        "The login at ZooKeeper by SASL (DIGEST-MD5), as the Client section of a JAAS file has it: "
        'org.apache.zookeeper.server.auth.DigestLoginModule required username="…" password="…";',
    ),
    _key(
        "oncelog.zookeeper.auth.digest",
        PASSWORD,
        None,
        "USER:PASSWORD of ZooKeeper's own digest scheme (addauth), which needs nothing on the server.",
    ),
)
