"""Broker keys about the authorizer; Apache Kafka 4.3's types and defaults."""

from __future__ import annotations

from typing import Final

from oncelog.core.configs.kinds import ConfigError, ConfigKey, ConfigType, Value

STRING = ConfigType.STRING
BOOLEAN = ConfigType.BOOLEAN

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_OLD_NAMES: Final = ("kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer")


def authorizer_class(key: str, value: Value) -> None:
    """Accept nothing, or Apache Kafka's StandardAuthorizer under one of its names: who configures another is not let in
    by no authorizer at all."""
    if value not in ("", STANDARD_AUTHORIZER, *_OLD_NAMES):
        raise ConfigError.of_value(
            key,
            value,
            f"no Java class is loaded here; access control lists work as in {STANDARD_AUTHORIZER}, which is the value "
            "to set, and without a value there is no authorization",
        )


def principals(key: str, value: Value) -> None:
    """Principals such as ``User:alice``, with a semicolon between them."""
    for principal in super_users_of(str(value or "")):
        if ":" not in principal:
            raise ConfigError.of_value(
                key, value, f"expected a string in format principalType:principalName but got {principal}"
            )


def super_users_of(text: str) -> frozenset[str]:
    """The principals that a text names."""
    return frozenset(part.strip() for part in text.split(";") if part.strip())


AUTHORIZER_KEYS: Final = (
    ConfigKey("authorizer.class.name", STRING, "", authorizer_class),
    ConfigKey(
        "super.users",
        STRING,
        "",
        principals,
        internal=True,
        hidden=True,
        documentation="Principals that may do everything, with semicolons between them: User:admin;User:broker. The "
        "principal of the brokers themselves is one of them, or has the operation ClusterAction on the cluster.",
    ),
    ConfigKey(
        "allow.everyone.if.no.acl.found",
        BOOLEAN,
        "false",
        internal=True,
        hidden=True,
        documentation="True: a resource that no ACL names may be used by everybody. A resource that any ACL names is "
        "closed to those whom none allows.",
    ),
)
