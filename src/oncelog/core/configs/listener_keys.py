"""Broker keys about listeners and TLS, with Apache Kafka 4.3's types and defaults."""

from __future__ import annotations

from typing import Final

from oncelog.core.configs.kinds import ConfigKey, ConfigType, Update, inert
from oncelog.core.configs.limits import at_least, one_of

BOOLEAN = ConfigType.BOOLEAN
STRING = ConfigType.STRING
INT = ConfigType.INT
LIST = ConfigType.LIST
CLASS = ConfigType.CLASS
PASSWORD = ConfigType.PASSWORD
CLUSTER_WIDE = Update.CLUSTER_WIDE
PER_BROKER = Update.PER_BROKER

LISTENER_KEYS: Final = (
    inert("early.start.listeners", LIST, None),
    ConfigKey(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        update=PER_BROKER,
    ),
    ConfigKey("max.connection.creation.rate", INT, "2147483647", at_least(0), CLUSTER_WIDE),
    ConfigKey(
        "security.inter.broker.protocol", STRING, "PLAINTEXT", one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    ),
    ConfigKey("inter.broker.listener.name", STRING, None),
    ConfigKey("ssl.client.auth", STRING, "none", one_of("required", "requested", "none"), PER_BROKER),
    ConfigKey("ssl.principal.mapping.rules", STRING, "DEFAULT"),
    inert("ssl.allow.dn.changes", BOOLEAN, "false"),
    inert("ssl.allow.san.changes", BOOLEAN, "false"),
    inert("ssl.protocol", STRING, "TLSv1.3", None, PER_BROKER),
    inert("ssl.provider", STRING, None, None, PER_BROKER),
    ConfigKey("ssl.enabled.protocols", LIST, "TLSv1.2,TLSv1.3", None, PER_BROKER),
    ConfigKey("ssl.keystore.type", STRING, "JKS", None, PER_BROKER),
    ConfigKey("ssl.keystore.location", STRING, None, None, PER_BROKER),
    ConfigKey("ssl.keystore.password", PASSWORD, None, None, PER_BROKER),
    ConfigKey("ssl.key.password", PASSWORD, None, None, PER_BROKER),
    ConfigKey("ssl.keystore.key", PASSWORD, None, None, PER_BROKER),
    ConfigKey("ssl.keystore.certificate.chain", PASSWORD, None, None, PER_BROKER),
    ConfigKey("ssl.truststore.type", STRING, "JKS", None, PER_BROKER),
    ConfigKey("ssl.truststore.location", STRING, None, None, PER_BROKER),
    ConfigKey("ssl.truststore.password", PASSWORD, None, None, PER_BROKER),
    ConfigKey("ssl.truststore.certificates", PASSWORD, None, None, PER_BROKER),
    inert("ssl.keymanager.algorithm", STRING, "SunX509", None, PER_BROKER),
    inert("ssl.trustmanager.algorithm", STRING, "PKIX", None, PER_BROKER),
    ConfigKey("ssl.endpoint.identification.algorithm", STRING, "https", None, PER_BROKER),
    inert("ssl.secure.random.implementation", STRING, None, None, PER_BROKER),
    ConfigKey("ssl.cipher.suites", LIST, "", None, PER_BROKER),
    inert("ssl.engine.factory.class", CLASS, None, None, PER_BROKER),
)

OAUTHBEARER_PREFIX: Final = "oauthbearer."
"""The prefix of a key that a listener sets for tokens alone; any key may have it, the issuer's too."""
MECHANISM_KEYS: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
"""Keys that a listener may set for each SASL mechanism."""

KEYS_OF_ALL_BROKERS: Final = ("max.connections", "max.connection.creation.rate", "num.network.threads")
"""Keys of a listener that may be set for all brokers while they run; the others are set for each broker."""
