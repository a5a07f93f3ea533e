"""Checks of a client's settings: their ranges, and names that were mistyped.

The rule: a key that is nearly one of ours is refused, for ``securty.protocol=SSL`` must not mean that a connection is
not encrypted. Others are passed over, because files of properties are shared with Java's clients and librdkafka, which
have hundreds that are none of ours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from oncelog.base.suggestions import nearest
from oncelog.base.units import INT32_MAX
from oncelog.client.errors import ConfigError

SECURITY_KEYS: Final = frozenset(
    {
        "security.protocol",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "enable.ssl.certificate.verification",
        "sasl.jaas.config",
        "sasl.login.callback.handler.class",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.password",
        "sasl.username",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
_OTHERS: Final = frozenset({"sasl.client.callback.handler.class", "socket.connection.setup.timeout.max.ms"})
"""Keys of other clients that are as near to one of ours as a mistyped one. All of Apache Kafka's 4.3 and librdkafka's
2.16 were compared."""


def check_range(name: str, value: int, least: int) -> None:
    """Raise ConfigError for a value that is below ``least`` or more than 32 bits hold."""
    if not least <= value <= INT32_MAX:
        raise ConfigError(f"{name}={value} is out of range: at least {least}, at most {INT32_MAX}")


def check_names(names: Iterable[str], keys: Collection[str]) -> None:
    """Raise ConfigError for a name that is nearly one of ``keys`` or of the keys of security."""
    known = {*keys, *SECURITY_KEYS, "bootstrap.servers"}
    for name in names:
        if name in known or name in _OTHERS:
            continue
        meant = nearest(name, known)
        if meant is not None:
            raise ConfigError(f"{name} is not a setting; did you mean {meant}?")
