"""Broker keys about SASL: who a client is; Apache Kafka 4.3's types and defaults."""

from __future__ import annotations

from typing import Final

from oncelog.core.configs.kinds import ConfigError, ConfigKey, ConfigType, Update, Value, inert
from oncelog.core.configs.limits import at_least, between, one_of_any_case

BOOLEAN = ConfigType.BOOLEAN
STRING = ConfigType.STRING
INT = ConfigType.INT
SHORT = ConfigType.SHORT
LONG = ConfigType.LONG
DOUBLE = ConfigType.DOUBLE
LIST = ConfigType.LIST
CLASS = ConfigType.CLASS
PASSWORD = ConfigType.PASSWORD
CLUSTER_WIDE = Update.CLUSTER_WIDE
PER_BROKER = Update.PER_BROKER

_BUILDER: Final = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


def _names_principals_as_kafka(key: str, value: Value) -> None:
    """No class but the one whose rules are honoured here: another could name other people."""
    if value != _BUILDER:
        raise ConfigError(
            f"{key} is a Java class; here only Apache Kafka's own names principals: leave it out", key=key, value=value
        )


SASL_KEYS: Final = (
    ConfigKey("config.providers", LIST, "", None, CLUSTER_WIDE),
    ConfigKey("connection.failed.authentication.delay.ms", INT, "100", at_least(0)),
    ConfigKey("connections.max.reauth.ms", LONG, "0"),
    ConfigKey("sasl.server.max.receive.size", INT, "524288", at_least(1)),
    inert(
        "principal.builder.class",
        CLASS,
        _BUILDER,
        _names_principals_as_kafka,
        PER_BROKER,
    ),
    ConfigKey("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", None, PER_BROKER),
    ConfigKey("sasl.enabled.mechanisms", LIST, "GSSAPI", None, PER_BROKER),
    ConfigKey("sasl.server.callback.handler.class", CLASS, None),
    inert("sasl.kerberos.principal.to.local.rules", LIST, "DEFAULT", None, PER_BROKER),
    ConfigKey("sasl.jaas.config", PASSWORD, None, None, PER_BROKER),
    inert("sasl.client.callback.handler.class", CLASS, None),
    inert("sasl.login.class", CLASS, None),
    inert("sasl.login.callback.handler.class", CLASS, None),
    inert("sasl.kerberos.service.name", STRING, None, None, PER_BROKER),
    inert("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", None, PER_BROKER),
    inert("sasl.kerberos.ticket.renew.window.factor", DOUBLE, "0.8", None, PER_BROKER),
    inert("sasl.kerberos.ticket.renew.jitter", DOUBLE, "0.05", None, PER_BROKER),
    inert("sasl.kerberos.min.time.before.relogin", LONG, "60000", None, PER_BROKER),
    inert("sasl.login.refresh.window.factor", DOUBLE, "0.8", None, PER_BROKER),
    inert("sasl.login.refresh.window.jitter", DOUBLE, "0.05", None, PER_BROKER),
    inert("sasl.login.refresh.min.period.seconds", SHORT, "60", None, PER_BROKER),
    inert("sasl.login.refresh.buffer.seconds", SHORT, "300", None, PER_BROKER),
    inert("sasl.login.connect.timeout.ms", INT, None),
    inert("sasl.login.read.timeout.ms", INT, None),
    inert("sasl.login.retry.backoff.max.ms", LONG, "10000"),
    inert("sasl.login.retry.backoff.ms", LONG, "100"),
    inert(
        "sasl.oauthbearer.jwt.retriever.class",
        CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
    ),
    inert(
        "sasl.oauthbearer.jwt.validator.class",
        CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
    ),
    inert("sasl.oauthbearer.scope", STRING, None),
    inert("sasl.oauthbearer.client.credentials.client.id", STRING, None),
    inert("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None),
    inert("sasl.oauthbearer.assertion.algorithm", STRING, "RS256", one_of_any_case("ES256", "RS256")),
    inert("sasl.oauthbearer.assertion.claim.aud", STRING, None),
    inert("sasl.oauthbearer.assertion.claim.exp.seconds", INT, "300", between(0, 86400)),
    inert("sasl.oauthbearer.assertion.claim.iss", STRING, None),
    inert("sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN, "false"),
    inert("sasl.oauthbearer.assertion.claim.nbf.seconds", INT, "60", between(0, 3600)),
    inert("sasl.oauthbearer.assertion.claim.sub", STRING, None),
    inert("sasl.oauthbearer.assertion.file", STRING, None),
    inert("sasl.oauthbearer.assertion.private.key.file", STRING, None),
    inert("sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD, None),
    inert("sasl.oauthbearer.assertion.template.file", STRING, None),
    ConfigKey("sasl.oauthbearer.scope.claim.name", STRING, "scope"),
    ConfigKey("sasl.oauthbearer.sub.claim.name", STRING, "sub"),
    inert("sasl.oauthbearer.token.endpoint.url", STRING, None),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.url", STRING, None),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, "3600000"),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, "100"),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, "10000"),
    ConfigKey("sasl.oauthbearer.clock.skew.seconds", INT, "30"),
    ConfigKey("sasl.oauthbearer.expected.audience", LIST, ""),
    ConfigKey("sasl.oauthbearer.expected.issuer", STRING, None),
    inert("delegation.token.secret.key", PASSWORD, None),
    inert("delegation.token.max.lifetime.ms", LONG, "604800000", at_least(1)),
    inert("delegation.token.expiry.time.ms", LONG, "86400000", at_least(1)),
    inert("delegation.token.expiry.check.interval.ms", LONG, "3600000", at_least(1)),
)
